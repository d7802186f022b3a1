#!/usr/bin/env bash
# The federated rows of docs/results/federated.md: one kpd federate a codec and seed, its lines kept in OUT/CODEC-SEED.jsonl. Can be stopped and started again: a run that
# is complete is skipped, one that is not goes on from its checkpoint with the same bits. bench/federate_tables.py OUT makes the table.
#
#   bench/federate_runs.sh OUT [ROUNDS [SEEDS [CODECS [OPTIONS...]]]]
#
#   bench/federate_runs.sh build/federate 100 "1 2 3"                                       float32, eden at 1 and .1 bit, hadamard-sq at .1
#   bench/federate_runs.sh build/federate200 200 1 all                                      five codecs at five rates, the entropy code, and rates by energy
#   bench/federate_runs.sh build/shakespeare 150 1 "float32 eden:bits=1 eden:bits=0.1" --task shakespeare-lstm --data roles.jsonl
set -euo pipefail
out=${1:?folder for the results} rounds=${2:-100} seeds=${3:-1 2 3} codecs=${4:-float32 eden:bits=1 eden:bits=0.1 hadamard-sq:bits=0.1}
shift $(($# < 4 ? $# : 4))
if [ "$codecs" = all ]; then
  codecs=float32
  for bits in 4 2 1 0.5 0.1; do codecs+=" eden:bits=$bits hadamard-sq:bits=$bits kashin-sq:bits=$bits"; done
  codecs+=" qsgd:bits=4 qsgd:bits=2 eden:code=entropy,bits=0.5 eden:code=entropy,bits=1 eden:code=entropy,bits=2 eden:bits=1,allocate=energy"
fi
kpd=$(dirname "$(readlink -f "$0")")/../build/release/bin/kpd
mkdir -p "$out"
for seed in $seeds; do
  for codec in $codecs; do
    name=$out/$(tr ':=,' '---' <<<"$codec")-$seed
    grep -q final_accuracy "$name.jsonl" 2>/dev/null && continue
    resume=()
    [ -e "$name.checkpoint" ] && resume=(--resume)
    "$kpd" federate "$@" --codec "$codec" --rounds "$rounds" --eval-every 10 --seed "$seed" --json --checkpoint "$name.checkpoint" "${resume[@]}" >>"$name.jsonl"
    rm -f "$name.checkpoint"
  done
done
grep -h final_accuracy "$out"/*.jsonl
