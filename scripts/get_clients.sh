#!/usr/bin/env bash
# Python packages that are clients of `kpd serve`, into build/clients-venv: get_clients.sh PACKAGE...   e.g.  openai lm-eval[api]
# tests/cli/clients_test.py and ./quickstart use them. What is there already is left as it is.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
[ $# -gt 0 ] || die "which packages? e.g. openai"
venv=$root/build/clients-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
"$venv/bin/pip" list --disable-pip-version-check 2>/dev/null | grep -iE "^(openai|lm.eval) " || true
