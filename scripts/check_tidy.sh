#!/usr/bin/env bash
# clang-tidy-14 with the short list of .clang-tidy over src/: check_tidy.sh BUILD [FOLDER or FILE...]
# Without files it reads those of src that include no JSON header (./check does so), with "json" those that do, which take two to three
# times as long, and tools (./check --all).
# Left out: src/train and what else includes torch (a minute a file, all of it in torch's headers), the tests and the fuzzers.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
build=$(cd "${1:?usage: check_tidy.sh BUILD [FILE...]}" && pwd)
shift
cd "$root"
json_headers='nlohmann/|io/json(_events)?\.h'
if [ $# = 0 ]; then
  mapfile -t files < <(find src -name '*.cc' | sort | xargs grep -LE "#include [<\"]($json_headers)")
elif [ "$1" = json ]; then
  mapfile -t files < <({ find tools -name '*.cc'; find src -name '*.cc' | xargs grep -lE "#include [<\"]($json_headers)"; } | sort)
else
  mapfile -t files < <(find "$@" -name '*.cc' | sort)
fi
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
