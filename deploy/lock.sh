#!/usr/bin/env bash
# Writes constraints.txt anew: resolves pyproject.toml freely and pins what came out.
#
# Two stay as they are, to be raised by hand: torch, because kernels are measured against one version,
# and async-timeout, which only Python before 3.11.3 needs.
set -euo pipefail

venv=.venv-lock
rm -rf "$venv"
deploy/venv.sh "$venv"
kept=$(grep -E '^(torch|async-timeout)==' constraints.txt)
"$venv/bin/python" -m pip install --quiet "$(grep '^torch==' constraints.txt)" \
  -e '.[worker,documents,embedded,small-model,dev]'
freeze() { "$venv/bin/python" -m pip freeze --exclude-editable --all; }
{
  echo "# Every dependency, pinned: what the Makefile, CI and the image install. Regenerate with 'make lock'."
  {
    echo "$kept"
    # what only torch's CUDA build brings is pinned by torch itself
    freeze | grep -Ev '^(torch==|async-timeout==|pip==|triton==|cuda-|nvidia-)'
    freeze | grep '^nvidia-ml-py=='
  } | LC_ALL=C sort --ignore-case
} >constraints.txt.new
mv constraints.txt.new constraints.txt
rm -rf "$venv"
