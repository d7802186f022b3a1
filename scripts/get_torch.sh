#!/usr/bin/env bash
# Puts libtorch (PyPI's wheel and the two CUDA run-time libraries it cannot load without; no GPU is used) into build/torch-venv, where
# cmake -DKPD_WITH_TORCH=ON finds it. Does nothing when it is there. About 1.3 GB on disk.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
venv=$root/build/torch-venv

torch_folder() {
  local lib
  for lib in "$venv"/lib/python3*/site-packages/torch/lib/libtorch_cpu.so; do
    [ -e "$lib" ] && dirname "$(dirname "$lib")"
  done
}

# The mark is written last: an interrupted installation is made anew.
if [ -e "$venv/complete" ] && [ -n "$(torch_folder)" ]; then
  echo "torch is there: $(torch_folder)"
  exit 0
fi
rm -rf "$venv"
mkdir -p "$root/build"
python=python3
[ ! -x /usr/bin/python3 ] || python=/usr/bin/python3
"$python" -m venv "$venv"
"$venv/bin/pip" install --no-deps --disable-pip-version-check torch nvidia-cuda-runtime nvidia-cuda-cupti
[ -n "$(torch_folder)" ] || die "the torch wheel has no lib/libtorch_cpu.so"
touch "$venv/complete"
echo "torch is there: $(torch_folder)"
