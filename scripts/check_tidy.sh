#!/usr/bin/env bash
# clang-tidy-14 with the short list of .clang-tidy over src/: check_tidy.sh BUILD [FOLDER or FILE...]
# ./check runs it over src, ./check --all over tools too, whose files take twice as long for their JSON and command line headers.
# Left out: src/train and what else includes torch (a minute a file, all of it in torch's headers), the tests and the fuzzers.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
build=$(cd "${1:?usage: check_tidy.sh BUILD [FILE...]}" && pwd)
shift
cd "$root"
[ $# -gt 0 ] || set -- src
mapfile -t files < <(find "$@" -name '*.cc' | sort)
mapfile -t files < <(printf '%s\n' "${files[@]}" | grep -v '^src/train/' | xargs grep -L '#include <torch/')
# Only files that the build compiles have a command there.
mapfile -t files < <(printf '%s\n' "${files[@]}" | while read -r file; do
  if grep -q "\"$root/$file\"" "$build/compile_commands.json"; then echo "$file"; fi
done)
[ ${#files[@]} -gt 0 ] || die "no file of src or tools is in $build/compile_commands.json"
# clang cannot read GCC's precompiled headers: the commands without them.
commands=$(mktemp -d)
trap 'rm -rf "$commands"' EXIT
sed 's/-Winvalid-pch//g; s/-include [^ ]*cmake_pch\.hxx//g' "$build/compile_commands.json" >"$commands/compile_commands.json"
# GCC's own warning flags are unknown to clang. Of Highway's targets one is read: the source is the same for all.
printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "$jobs" clang-tidy-14 -p "$commands" --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option \
    --extra-arg=-DHWY_COMPILE_ONLY_STATIC
echo "${#files[@]} files"
