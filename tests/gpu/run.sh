#!/usr/bin/env bash
# Everything that has to be shown on a machine with a GPU, in one go of at most 15 minutes:
#
#   tests/gpu/build.sh                      beforehand, where there is a compiler
#   tests/gpu/run.sh [FOLDER]               on the machine; results go to FOLDER (or $OUT)
#
# It prints one table and writes results.json. It ends with 0 where everything held on a GPU, with 1
# where something did not, and with 3 where there is no GPU: nothing was then shown of one. Where the
# interpreter stands in for the driver, it is a rehearsal with small shapes that keeps no speed.
# The machine needs bash, awk and coreutils; nothing is built or downloaded there.
#   LOCKSTEP_TEST_MODEL=FILE   compares this model's logits with the CPU's as well (SmolLM2)
#   LOCKSTEP_GPU_SCALE=N       divides the sides of the large matrices and models
#   LOCKSTEP_GPU_SECONDS=N     what all steps have together; 840 if unset
#   LOCKSTEP_GPU_SKIP="..."    leaves steps out by name
set -uo pipefail
cd "$(dirname "$0")/../.."
bin=tests/gpu/bin
out=${1:-${OUT:-tests/gpu/out}}
mkdir -p "$out"
: >"$out/steps.jsonl"
: >"$out/bandwidth.jsonl"
: >"$out/bench.jsonl"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LOCKSTEP_TEST_DEVICE=cuda REQUIRE_CUDA=1
failed=0
whole=${LOCKSTEP_GPU_SECONDS:-840}

for program in lockstep gpu tiny_model proof forward; do
  if [ ! -x "$bin/$program" ]; then
    echo "$bin/$program is missing: run tests/gpu/build.sh first" >&2
    exit 1
  fi
done
"$bin/tiny_model" "$work/tiny.gguf" || exit 1

# The device, as the program sees it.
device=$("$bin/lockstep" inspect "$work/tiny.gguf" --device cuda 2>&1 | tail -n 40)
found=$(sed -n 's/^device  *//p' <<<"$device")
case $found in
  cuda:*"not a GPU"*) kind=rehearsal ;;
  cuda:*) kind=gpu ;;
  *)
    reason=$(tail -n 1 <<<"${found:-$device}" | tr -d '"\\')
    echo "not run on a GPU: ${reason:-no device}"
    printf '{"device":null,"gpu":false,"reason":"%s"}\n' "${reason:-no device}" >"$out/results.json"
    exit 3
    ;;
esac
device=$found
echo "device: $device"
if [ $kind = gpu ]; then
  scale=${LOCKSTEP_GPU_SCALE:-1}
else
  scale=${LOCKSTEP_GPU_SCALE:-16}
  echo "this is no GPU: a rehearsal, with sides divided by $scale, of which no speed is kept"
fi

# step NAME SECONDS COMMAND...: runs it with a limit, or with what is left of the whole where that is
# less; keeps what it says, notes how it ended.
step() {
  local name=$1 limit=$2 left=$((whole - SECONDS)) begun status=passed last rc
  shift 2
  case " ${LOCKSTEP_GPU_SKIP:-} " in *" $name "*)
    note "$name" skipped 0 "left out by LOCKSTEP_GPU_SKIP"
    return 1
    ;;
  esac
  if [ $left -le 0 ]; then
    failed=1
    note "$name" FAILED 0 "not begun: the $whole s of the whole were used up"
    return 1
  fi
  [ "$limit" -le $left ] || limit=$left
  begun=$SECONDS
  timeout "$limit" "$@" >"$out/$name.log" 2>&1
  rc=$?
  # The test programs end with lines that say nothing of what was shown.
  last=$(grep -Ev '^(test |running |\{|$)' "$out/$name.log" | tail -n 1 | tr -d '"\\' | tr '\t' ' ' | cut -c1-110)
  if [ $rc = 124 ]; then last="ended after its $limit s: $last"; fi
  if [ $rc != 0 ]; then
    status=FAILED
    failed=1
    tail -n 20 "$out/$name.log"
  fi
  note "$name" "$status" $((SECONDS - begun)) "$last"
  return $rc
}

note() {
  printf '%-24s %-8s %4s s  %s\n' "$1" "$2" "$3" "$4"
  printf '{"step":"%s","status":"%s","seconds":%s,"said":"%s"}\n' "$1" "$2" "$3" "$4" >>"$out/steps.jsonl"
}

# Where a tool is not there, that is noted and is no failure.
absent() { note "$1" absent 0 "$2 is not installed"; }

# The value of a key that stands once in a line of JSON.
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }

# speeds NAME FILE: keeps the lines of JSON that a step said; of a rehearsal only what was measured.
speeds() {
  local lines
  lines=$(grep '^{' "$out/$1.log")
  if [ -z "$lines" ]; then
    echo "$1 measured nothing" >&2
    failed=1
  fi
  if [ $kind = gpu ]; then
    sed "s/^{/{\"step\":\"$1\",/" <<<"$lines" >>"$out/$2"
  else
    echo "no speed is kept: not a GPU" >"$out/$1.log"
  fi
}

# Bits first: they are what the rest stands on.
step kernels 150 "$bin/proof" --nocapture every_kernel_equals_the_reference_through_a_driver
step kernels-other-shapes 120 env LOCKSTEP_TEST_SEED=$RANDOM "$bin/proof" --nocapture \
  every_kernel_equals_the_reference_through_a_driver
step forward 60 "$bin/forward" --nocapture the_same_through_a_driver
step doctor-tiny 60 "$bin/lockstep" doctor --model "$work/tiny.gguf" --prompt 40 --device cuda
# The same tokens through the engine, with graphs and without.
tokens() {
  local options=(--model "$work/tiny.gguf" --num-blocks 32 --max-model-len 128 --max-tokens 24 --temperature 0)
  local expected got
  expected=$("$bin/lockstep" run "the rain of the island" "${options[@]}" --device cpu) || return 1
  for more in "" --enforce-eager; do
    got=$("$bin/lockstep" run "the rain of the island" "${options[@]}" --device cuda $more) || return 1
    [ "$got" = "$expected" ] || { echo "other tokens $more: $got"; echo "the CPU's: $expected"; return 1; }
  done
  echo "the CPU's tokens, with graphs and without"
}
export -f tokens
export bin work
step tokens-tiny 60 bash -c tokens
if [ -n "${LOCKSTEP_TEST_MODEL:-}" ]; then
  step doctor-model 180 "$bin/lockstep" doctor --model "$LOCKSTEP_TEST_MODEL" --prompt "${LOCKSTEP_GPU_PROMPT:-60}" --device cuda
else
  note doctor-model absent 0 "LOCKSTEP_TEST_MODEL names no file"
fi

# Memory and races, as NVIDIA's own tool sees them.
for tool in memcheck racecheck; do
  if command -v compute-sanitizer >/dev/null; then
    step "$tool" 90 compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$bin/forward" --nocapture the_same_through_a_driver
  else
    absent "$tool" compute-sanitizer
  fi
done

# Speed: kernels, then a model of the 8B shape with random weights, its prompt under both numerics.
step bandwidth 90 "$bin/gpu" bandwidth "$scale" && speeds bandwidth bandwidth.jsonl
if [ "$scale" = 1 ]; then
  rows="--prompt 2048 --generate 64 --streams 1,8,64 --contexts 128 --repeats 2"
  fast="--prompt 2048 --generate 16 --streams 1,64 --contexts 128 --repeats 2"
else
  rows="--prompt 20 --generate 1 --streams 1,3 --contexts 3 --repeats 1"
  fast=$rows
fi
# bench NAME MODEL ARGUMENTS...
bench() {
  local name=$1 model=$2
  shift 2
  step "$name" 120 "$bin/lockstep" bench --model "$model" --device cuda --threads "$(nproc)" --json "$@" &&
    speeds "$name" bench.jsonl
}
declare -A floors
for type in q4_k q8_0; do
  model=$work/$type.gguf
  step "model-$type" 90 "$bin/gpu" model "$model" "$type" "$scale" || continue
  floors[$type]=$(field read_by_a_step <"$out/model-$type.log")
  # shellcheck disable=SC2086
  bench "bench-$type" "$model" $rows
  if [ $type = q4_k ]; then
    # shellcheck disable=SC2086
    bench "bench-$type-fast" "$model" $fast --numerics fast
  fi
  rm -f "$model"
done

# The worst kernel, by its share of a copy's rate.
worst=linear_q4_k_x1
if [ $kind = gpu ]; then
  worst=$(grep '_x1"' "$out/bandwidth.jsonl" | while read -r line; do
    echo "$(field of_copy <<<"$line") $(field kernel <<<"$line")"
  done | sort -n | head -n 1 | cut -d' ' -f2)
fi
if [ -z "$worst" ]; then
  note ncu "not run" 0 "no bandwidth was measured"
elif command -v ncu >/dev/null; then
  before=$failed
  if ! step ncu 90 ncu --set full --kernel-name "$worst" --launch-count 1 "$bin/gpu" bandwidth "$scale" &&
    grep -q ERR_NVGPUCTRPERM "$out/ncu.log"; then
    failed=$before
    note ncu "not run" 0 "this user may not read the GPU's counters"
  fi
else
  absent ncu ncu
fi

# The report: the lines that were kept, in one object.
joined() { paste -sd, "$out/$1"; }
printf '{"device":"%s","gpu":%s,"date":"%s","scale":%s,"steps":[%s],"bandwidth":[%s],"bench":[%s]}\n' \
  "$device" "$([ $kind = gpu ] && echo true || echo false)" "$(date +%F)" "$scale" \
  "$(joined steps.jsonl)" "$(joined bandwidth.jsonl)" "$(joined bench.jsonl)" >"$out/results.json"
echo
while read -r line; do
  awk -v name="$(field kernel <<<"$line")" -v us="$(field microseconds <<<"$line")" \
    -v rate="$(field gb_per_second <<<"$line")" -v share="$(field of_copy <<<"$line")" \
    'BEGIN { printf "%-40s%12.1f us%10.1f GB/s%7.1f %% of a copy\n", name, us, rate, 100 * share }'
done <"$out/bandwidth.jsonl"
while read -r line; do
  name=$(field step <<<"$line")
  # Alone, a stream's step reads every weight once: what a copy's rate allows is its floor.
  case $name in *q4_k*) floor=${floors[q4_k]:-0} ;; *) floor=${floors[q8_0]:-0} ;; esac
  grep -o '"name":"[^"]*","tokens":[0-9]*,"tokens_per_second":{"median":[0-9.e+-]*' <<<"$line" |
    sed 's/"name":"\([^"]*\)".*"median":\(.*\)/\2 \1/' |
    awk -v step="$name" -v floor="$floor" -v copy="$(grep '"copy"' "$out/bandwidth.jsonl" | field gb_per_second)" '{
      rate = $1; $1 = ""; share = ""
      if (/decode, 1 at once/ && copy > 0) share = sprintf("%7.1f %% of a copy", 100 * rate * floor / copy / 1e9)
      printf "%-18s%-34s%12.1f tokens/s%s\n", step, $0, rate, share }'
done <"$out/bench.jsonl"
echo "results are in $out/results.json"
if [ $kind != gpu ]; then
  echo "not run on a GPU: this was a rehearsal on $device; nothing of it is a speed"
  [ $failed = 0 ] && exit 3
fi
exit $failed
