#!/usr/bin/env bash
# Python packages that are clients of `kpd serve`, into build/clients-venv: get_clients.sh PACKAGE...   e.g.  openai lm-eval[api]
# NAME@VERSION is put beside what is installed, into build/clients-venv/NAME-VERSION, without what it needs: a second version of a package.
# tests/cli/clients_test.py and ./quickstart use them. What is there already is left as it is.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
[ $# -gt 0 ] || die "which packages? e.g. openai"
venv=$root/build/clients-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
packages=()
for package in "$@"; do
  if [[ $package == *@* ]]; then
    name=${package%@*} version=${package#*@}
    [ -d "$venv/$name-$version" ] ||
      "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$venv/$name-$version" "$name==$version"
  else
    packages+=("$package")
  fi
done
[ ${#packages[@]} -eq 0 ] || "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
"$venv/bin/pip" list --disable-pip-version-check 2>/dev/null | grep -iE "^(openai|lm.eval) " || true
