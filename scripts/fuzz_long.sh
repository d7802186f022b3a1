#!/usr/bin/env bash
# fuzz_long.sh [RUNS [NAME...]]: builds the fuzzers and gives each (or those named, e.g. stream npy) RUNS executions, ten million by
# default. New inputs stay in build/fuzz/fuzz/found, logs and crashes beside them; the first finding ends that fuzzer and is reported.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"
runs=${1:-10000000}
shift $(($# > 0 ? 1 : 0))
step "fuzzer build" configure_and_build fuzz fuzz
out=$root/build/fuzz/fuzz
mkdir -p "$out/logs" "$out/crashes"
names=("$@")
if [ ${#names[@]} = 0 ]; then
  for program in build/fuzz/bin/*_fuzz; do names+=("$(basename "$program" _fuzz)"); done
fi

fuzz_one() {
  local name=$1 seeds=("$out/found/${1}_fuzz") log=$out/logs/$1.log
  [ ! -d "fuzz/corpus/$name" ] || seeds+=("fuzz/corpus/$name")
  [ "$name" != aggregator ] || seeds+=(fuzz/corpus/stream)  # its messages are streams
  mkdir -p "${seeds[0]}"
  if "build/fuzz/bin/${name}_fuzz" -runs="$runs" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$out/crashes/$name-" "${seeds[@]}" >"$log" 2>&1; then
    echo "$name: no finding; $(grep -h 'number_of_executed_units' "$log")"
  else
    echo "$name: FINDING, see $log"
    return 1
  fi
}
export -f fuzz_one
export out runs
printf '%s\0' "${names[@]}" | xargs -0 -n 1 -P "$jobs" bash -c 'fuzz_one "$0"'
