#!/usr/bin/env bash
# Runs the tests of kpd for Python against what scripts/get_python.sh installed; the options are pytest's.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
python=$root/build/python-venv/bin/python
if [ ! -x "$python" ]; then
  echo "skipped: kpd for Python is not installed in build/python-venv (scripts/get_python.sh)"
  exit 77
fi
cd "$root"
exec "$python" -B -m pytest -p no:cacheprovider "$@"
