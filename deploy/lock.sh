#!/usr/bin/env bash
# Writes constraints.txt anew: resolves pyproject.toml freely, torch excepted, and pins what came out.
#
# torch stays where it is, because kernels are measured against one version; raise it by hand.
set -euo pipefail

venv=.venv-lock
rm -rf "$venv"
deploy/venv.sh "$venv"
torch=$(grep '^torch==' constraints.txt)
"$venv/bin/python" -m pip install --quiet "$torch" -e '.[worker,embedded,small-model,dev]'
freeze() { "$venv/bin/python" -m pip freeze --exclude-editable --all; }
{
  echo "# Every dependency, pinned: what the Makefile, CI and the image install. Regenerate with 'make lock'."
  echo "$torch"
  # what only torch's CUDA build brings is pinned by torch itself
  freeze | grep -Ev '^(torch==|pip==|triton==|cuda-|nvidia-)'
  freeze | grep '^nvidia-ml-py=='
} >constraints.txt.new
mv constraints.txt.new constraints.txt
rm -rf "$venv"
