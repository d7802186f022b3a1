#!/usr/bin/env bash
# without_llm.sh BUILD CMAKE: configures and builds kpd without kpd::llm in BUILD-without_llm (which is kept: the next time little is built; and
# lies beside BUILD, so that ccache knows what both compile) and tries it: gradients work, the commands of models say what is missing. And without kpd::io: no program, and CMake says so.
set -euo pipefail
build=$(cd "${1:?usage: without_llm.sh BUILD CMAKE}" && pwd -P)
cmake=${2:?usage: without_llm.sh BUILD CMAKE}
source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

configure() {
  local folder=$1
  shift
  "$cmake" -G Ninja -S "$source_root" -B "$folder" -DCMAKE_BUILD_TYPE=Release -DKPD_BUILD_TESTS=OFF -DKPD_BUILD_EXAMPLES=OFF "$@"
}

# expect CODE PATTERN COMMAND...: its exit code, and what it prints.
expect() {
  local code=$1 pattern=$2 got=0
  shift 2
  "$@" >"$work/out" 2>&1 || got=$?
  if [ "$got" != "$code" ] || ! grep -qE "$pattern" "$work/out"; then
    echo "exit $got of '$*', expected $code and '$pattern':" >&2
    cat "$work/out" >&2
    exit 1
  fi
}

configure "$build-without_llm" -DKPD_WITH_LLM=OFF >"$work/log" || { cat "$work/log"; exit 1; }
"$cmake" --build "$build-without_llm" --target kpd_program kpd_manual --parallel 2
kpd=$build-without_llm/bin/kpd
if ldd "$kpd" | grep -E "pcre2|httplib|libedit"; then
  echo "a kpd without language models is linked with what only they need (above)" >&2
  exit 1
fi

# Gradients: what the examples of --help do.
cd "$work"
expect 0 "eden:bits=1" "$kpd" mean --synthetic lognormal --dim 2^14 --clients 4 --codec eden:bits=1 --seed 1 --out mean.npy
expect 0 "" "$kpd" encode mean.npy mean.kpdg --codec eden:bits=2 --seed 1
expect 0 "eden:bits=2" "$kpd" inspect mean.kpdg
expect 0 "" "$kpd" decode mean.kpdg back.npy
expect 0 "the keys|values" "$kpd" codecs eden
# A model's tensors are listed, without what only kpd::llm knows.
expect 0 "GGUF, [0-9]+ tensors" "$kpd" inspect "$source_root/tests/golden/models/chat/model.gguf"
expect 0 '"tokenizer":null' "$kpd" inspect --json "$source_root/tests/golden/models/chat/model.gguf"

for command in eval generate serve bench plan export; do
  expect 1 "KPD_WITH_LLM=ON" "$kpd" "$command" MODEL.gguf --prompt x
  expect 0 "KPD_WITH_LLM=ON" "$kpd" "$command" --help
done
expect 2 "did you mean 'generate'" "$kpd" generat
# Names and summaries are those of the program with all components.
"$kpd" --help | sed 's/ (not in this build)$//' >without.txt
"$build/bin/kpd" --help | sed 's/ (not in this build)$//' | diff - without.txt

# Without files there is no program, and no training.
configure "$work/core" -DKPD_WITH_IO=OFF >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
grep -q "KPD_WITH_IO=OFF: the core alone" "$work/log"
if "$cmake" --build "$work/core" --target help | grep -q kpd_program; then
  echo "KPD_WITH_IO=OFF makes a program all the same" >&2
  exit 1
fi
if configure "$work/train" -DKPD_WITH_IO=OFF -DKPD_WITH_TORCH=ON >"$work/log" 2>&1 || ! grep -q "needs KPD_WITH_IO=ON" "$work/log"; then
  echo "KPD_WITH_TORCH=ON without KPD_WITH_IO was not refused with a reason" >&2
  exit 1
fi
echo "a kpd without language models: gradients work, the rest says what is missing"
