#!/usr/bin/env bash
# The federated rows of docs/results/federated.md, one kpd federate a codec and seed, its lines kept in OUT/CODEC-SEED.jsonl. Can be stopped
# (Ctrl-C, kill, power) and started again: a run whose result line is there is not run again, one that was under way goes on from its
# checkpoint with the same bits. All runs of a folder are of one machine. bench/federate_tables.py OUT PLOT.png makes table and plot.
#
#   bench/federate_runs.sh OUT images                        Fashion-MNIST, 200 rounds: 14 codecs, three seeds of four of them
#   bench/federate_runs.sh OUT text --data roles.jsonl       Shakespeare, 150 rounds: 6 codecs, three seeds of three of them
#   printf '%s\n' '1 float32' '1 eden:bits=1' | bench/federate_runs.sh OUT - --rounds 100 --client-lr 0.0316     lines SEED CODEC, any options
#
# KPD=PROGRAM: another program than build/release/bin/kpd.
set -euo pipefail
out=${1:?folder for the results} what=${2:?images, text or - for lines SEED CODEC on stdin}
shift 2
kpd=${KPD:-$(dirname "$(readlink -f "$0")")/../build/release/bin/kpd}

# All codecs with the first seed come first.
images() {
  local codec seed
  for codec in float32 eden:bits=1 eden:bits=4 eden:bits=2 eden:bits=0.5 eden:bits=0.1 eden:bits=1,code=entropy eden:bits=1,allocate=energy \
    eden:bits=1,join=0 hadamard-sq:bits=1 hadamard-sq:bits=0.1 kashin-sq:bits=1 qsgd:bits=4,norm=max,code=fixed sq:bits=4,block=128; do
    echo "1 $codec"
  done
  for seed in 2 3; do
    for codec in float32 eden:bits=4 eden:bits=1 eden:bits=1,join=0; do echo "$seed $codec"; done
  done
}
text() {
  local codec seed
  for codec in float32 eden:bits=1 eden:bits=4 eden:bits=0.1 hadamard-sq:bits=1 kashin-sq:bits=1; do echo "1 $codec"; done
  for seed in 2 3; do
    for codec in float32 eden:bits=4 eden:bits=1; do echo "$seed $codec"; done
  done
}

case $what in
  images) runs=$(images) options=(--rounds 200 "$@") ;;
  text) runs=$(text) options=(--task shakespeare-lstm --rounds 150 "$@") ;;
  -) runs=$(cat) options=("$@") ;;
  *) echo "federate_runs.sh: $what: expected images, text or -" >&2 && exit 2 ;;
esac

mkdir -p "$out"
# A cloud's processors of several generations go by one name: family and model tell them apart.
machine=$(awk -F': *' '/^(model name|cpu family|model)[ \t]*:/ && !seen[$1]++ { line = line (line == "" ? "" : ", ") $1 " " $2 } END { gsub(/\t/, "", line); print line }' /proc/cpuinfo)
[ -e "$out/machine" ] || echo "$machine" >"$out/machine"
if [ "$(cat "$out/machine")" != "$machine" ]; then
  echo "federate_runs.sh: the runs in $out are of another machine ($(cat "$out/machine")); this one is $machine" >&2
  exit 1
fi

while read -r seed codec; do
  [ -n "$seed" ] || continue
  name=$out/$(tr ':=,*?' '---__' <<<"$codec")-$seed
  grep -q '"final_accuracy"' "$name.jsonl" 2>/dev/null && continue
  resume=()
  [ -e "$name.checkpoint" ] && resume=(--resume)
  echo "$codec, seed $seed" >&2
  "$kpd" federate --eval-every 10 "${options[@]}" --codec "$codec" --seed "$seed" --json --checkpoint "$name.checkpoint" "${resume[@]}" \
    >>"$name.jsonl" </dev/null
  rm -f "$name.checkpoint"
done <<<"$runs"
grep -h '"final_accuracy"' "$out"/*.jsonl
