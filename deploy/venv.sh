#!/usr/bin/env bash
# Makes the virtual environment $1 with the first Python on PATH that is new enough; keeps one there.
set -euo pipefail

venv=$1
if [[ -x $venv/bin/python ]] && "$venv/bin/python" -c 'import pip' 2>/dev/null; then
  exit
fi
for python in python3 python3.11 python3.12 python3.13; do
  if "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    exec "$python" -m venv --clear "$venv"
  fi
done
echo "No Python with the venv module, 3.11 or newer, is on PATH (python3, python3.11, python3.12," \
  "python3.13). Install one, on Debian: apt-get install python3 python3-venv." >&2
exit 1
