#!/usr/bin/env bash
# Every C and C++ file is as clang-format-14 writes it. `check_format.sh --fix` rewrites instead.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
folders=()
for folder in include src tools tests fuzz bench examples python; do
  [ ! -d $folder ] || folders+=("$folder")
done
mode=(--dry-run -Werror)
[ "${1:-}" != --fix ] || mode=(-i)
mapfile -d '' files < <(find "${folders[@]}" -type f \( -name '*.cc' -o -name '*.h' -o -name '*.c' \) -print0)
printf '%s\0' "${files[@]}" | xargs -0 -n 16 -P "$jobs" clang-format-14 "${mode[@]}"
echo "${#files[@]} files"
