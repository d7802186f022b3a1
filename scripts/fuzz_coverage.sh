#!/usr/bin/env bash
# fuzz_coverage.sh [FOLDER...]: line coverage of the readers by the fuzzers' inputs: fuzz/corpus, what scripts/fuzz_long.sh found, and
# the FOLDERs given, each with a folder a fuzzer (stream, npy, ...). Prints a table a source file. Needs Debian's llvm-14.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
command -v llvm-cov-14 >/dev/null || install_packages llvm-14
build=$root/build/fuzz-coverage
flags="-fprofile-instr-generate -fcoverage-mapping"
step "coverage build" cmake --preset fuzz -B "$build" -DKPD_SANITIZE= "-DCMAKE_CXX_FLAGS=$flags"
step "build" cmake --build "$build" --parallel "$jobs"

profiles=() objects=()
for program in "$build"/bin/*_fuzz; do
  name=$(basename "$program" _fuzz)
  seeds=()
  for folder in "fuzz/corpus/$name" "build/fuzz/fuzz/found/${name}_fuzz" "${@/%//$name}"; do
    [ ! -d "$folder" ] || seeds+=("$folder")
  done
  LLVM_PROFILE_FILE=$build/$name.profraw "$program" -runs=0 "${seeds[@]}" >"$build/$name.log" 2>&1 || die "$name: see $build/$name.log"
  profiles+=("$build/$name.profraw")
  objects+=(-object "$program")
done
llvm-profdata-14 merge -o "$build/all.profdata" "${profiles[@]}"
llvm-cov-14 report -instr-profile "$build/all.profdata" "${objects[@]:1}" src/io src/gradient src/coding src/base |
  awk '/^Filename|\.(cc|h) |^TOTAL/ {printf "%-40s %8s lines %9s\n", $1, $(NF-5), $(NF-3)}'
