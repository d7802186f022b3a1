#!/usr/bin/env bash
# The federated rows of docs/results/federated.md: one kpd federate a codec and seed, its lines kept in OUT/CODEC-SEED.jsonl. Can be stopped and started again: a run that
# is complete is skipped, one that is not goes on from its checkpoint with the same bits.
#
#   bench/federate_runs.sh OUT [ROUNDS] [SEEDS]        e.g.  bench/federate_runs.sh build/federate 100 "1 2 3"
set -euo pipefail
out=${1:?folder for the results} rounds=${2:-100} seeds=${3:-1 2 3}
kpd=$(dirname "$(readlink -f "$0")")/../build/release/bin/kpd
mkdir -p "$out"
for seed in $seeds; do
  for codec in float32 eden:bits=1 eden:bits=0.1 hadamard-sq:bits=0.1; do
    name=$out/$(tr ':=,' '---' <<<"$codec")-$seed
    grep -q final_accuracy "$name.jsonl" 2>/dev/null && continue
    resume=()
    [ -e "$name.checkpoint" ] && resume=(--resume)
    "$kpd" federate --task fashion-cnn --codec "$codec" --rounds "$rounds" --eval-every 10 --seed "$seed" --json --checkpoint "$name.checkpoint" "${resume[@]}" >>"$name.jsonl"
    rm -f "$name.checkpoint"
  done
done
grep -h final_accuracy "$out"/*.jsonl
