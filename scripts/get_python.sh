#!/usr/bin/env bash
# Installs kpd for Python into build/python-venv, with what its tests need, and again where the checkout has changed:
#
#   scripts/get_python.sh          numpy, pytest, mypy
#   scripts/get_python.sh torch    and torch, for the CPU: its wheel and the CUDA libraries that it cannot be loaded without; 1.5 GB.
#                                  Flower with its simulation engine too
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
venv=$root/build/python-venv
python=python3
[ ! -x /usr/bin/python3 ] || python=/usr/bin/python3

# The mark is written last: an interrupted installation is made anew.
if [ ! -e "$venv/complete" ]; then
  rm -rf "$venv"
  mkdir -p "$root/build"
  "$python" -m venv "$venv"
  "$venv/bin/pip" install --disable-pip-version-check -q numpy pytest mypy typing-extensions
  touch "$venv/complete"
fi
# The compilers' names are those of the other builds, so that ccache gives what the release build compiled.
(cd "$root" && CC=cc CXX=c++ "$venv/bin/pip" install --disable-pip-version-check -q .)
if [ "${1:-}" = torch ] && [ ! -e "$venv/torch" ]; then
  "$venv/bin/pip" install --disable-pip-version-check -q --no-deps torch nvidia-cuda-runtime nvidia-cuda-cupti nvidia-cufile nvidia-cusparselt-cu13 \
    nvidia-nvshmem-cu13 nvidia-nccl-cu13
  "$venv/bin/pip" install --disable-pip-version-check -q sympy networkx jinja2 filelock fsspec
  touch "$venv/torch"
fi
if [ "${1:-}" = torch ] && [ ! -e "$venv/flower" ]; then
  "$venv/bin/pip" install --disable-pip-version-check -q 'flwr[simulation]>=1.22'
  touch "$venv/flower"
fi
echo "kpd for Python is there: $("$venv/bin/python" -c 'import kpd; print(kpd.__version__, kpd.__path__[0])')"
