#!/usr/bin/env bash
# Everything that has to be shown on a machine with a GPU, in one go of at most 15 minutes:
#
#   tests/gpu/build.sh                      beforehand, where there is a compiler
#   tests/gpu/run.sh [FOLDER]               on the machine; results go to FOLDER (or $OUT)
#
# It prints one table and writes results.json. It ends with 0 where everything held on a GPU, with 1
# where something did not, and with 3 where there is no GPU: nothing was then shown of one.
#   LOCKSTEP_TEST_MODEL=FILE   compares this model's logits with the CPU's as well (SmolLM2)
#   LOCKSTEP_GPU_SCALE=N       divides the sides of the large matrices and models: a rehearsal
#   LOCKSTEP_GPU_SKIP="..."    leaves steps out by name
set -uo pipefail
cd "$(dirname "$0")/../.."
bin=tests/gpu/bin
out=${1:-${OUT:-tests/gpu/out}}
mkdir -p "$out"
: >"$out/results.jsonl"
: >"$out/bandwidth.jsonl"
scale=${LOCKSTEP_GPU_SCALE:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LOCKSTEP_TEST_DEVICE=cuda
failed=0
# What all steps have together, in seconds.
whole=900

for program in lockstep gpu tiny_model proof forward; do
  if [ ! -x "$bin/$program" ]; then
    echo "$bin/$program is missing: run tests/gpu/build.sh first" >&2
    exit 1
  fi
done
"$bin/tiny_model" "$work/tiny.gguf" || exit 1

# The device, as the program sees it.
device=$("$bin/lockstep" inspect "$work/tiny.gguf" --device cuda 2>&1 | sed -n 's/^device  *//p')
case $device in
  cuda:*"not a GPU"*) kind=interpreter ;;
  cuda:*) kind=gpu ;;
  *)
    echo "not run on a GPU: ${device:-no device}"
    printf '{"device":null,"gpu":false,"reason":"%s"}\n' "${device:-no device}" >"$out/results.json"
    exit 3
    ;;
esac
echo "device: $device"

# step NAME SECONDS COMMAND...: runs it with a limit, or with what is left of the whole where that is
# less; keeps what it says, notes how it ended.
step() {
  local name=$1 limit=$2 left=$((whole - SECONDS)) begun ended status=passed rc
  shift 2
  case " ${LOCKSTEP_GPU_SKIP:-} " in *" $name "*)
    note "$name" skipped 0 "left out by LOCKSTEP_GPU_SKIP"
    return
    ;;
  esac
  if [ $left -le 0 ]; then
    failed=1
    note "$name" FAILED 0 "not begun: the $whole s of the whole were used up"
    return
  fi
  [ "$limit" -le $left ] || limit=$left
  begun=$(date +%s)
  timeout "$limit" "$@" >"$out/$name.log" 2>&1
  rc=$?
  ended=$(date +%s)
  if [ $rc != 0 ]; then
    status=FAILED
    failed=1
    tail -n 20 "$out/$name.log"
  fi
  note "$name" "$status" $((ended - begun)) "$(tail -n 1 "$out/$name.log" | tr -d '"\\' | cut -c1-90)"
}

note() {
  printf '%-24s %-8s %4s s  %s\n' "$1" "$2" "$3" "$4"
  printf '{"step":"%s","status":"%s","seconds":%s,"last_line":"%s"}\n' "$1" "$2" "$3" "$4" >>"$out/results.jsonl"
}

# Where a tool is not there, that is noted and is no failure.
absent() { note "$1" absent 0 "$2 is not installed"; }

# Bits first: they are what the rest stands on.
step kernels 150 "$bin/proof" --nocapture every_kernel_equals_the_reference_through_a_driver
step kernels-other-shapes 120 env LOCKSTEP_TEST_SEED=$RANDOM "$bin/proof" --nocapture \
  every_kernel_equals_the_reference_through_a_driver
note kernels-fast "not run" 0 "tensor cores add in an order of their own: compiled, not compared"
step forward 60 "$bin/forward" --nocapture the_same_through_a_driver
step doctor-tiny 60 "$bin/lockstep" doctor --model "$work/tiny.gguf" --prompt 40 --device cuda
if [ -n "${LOCKSTEP_TEST_MODEL:-}" ]; then
  step doctor-model 180 "$bin/lockstep" doctor --model "$LOCKSTEP_TEST_MODEL" --prompt "${LOCKSTEP_GPU_PROMPT:-60}" --device cuda
else
  note doctor-model absent 0 "LOCKSTEP_TEST_MODEL names no file"
fi

# Memory and races, as NVIDIA's own tool sees them.
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    step "$tool" 120 compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$bin/forward" --nocapture the_same_through_a_driver
  done
else
  absent memcheck compute-sanitizer
  absent racecheck compute-sanitizer
fi

# Speed.
step bandwidth 90 "$bin/gpu" bandwidth "$scale"
grep '^{' "$out/bandwidth.log" >"$out/bandwidth.jsonl" 2>/dev/null
for type in q4_k q8_0; do
  step "model-$type" 120 "$bin/gpu" model "$work/$type.gguf" "$type" "$scale"
  threads=$(nproc)
  if [ "$scale" = 1 ]; then
    rows="--prompt 2048 --generate 64 --streams 1,8,64 --contexts 128 --repeats 2"
  else
    rows="--prompt 20 --generate 1 --streams 1,3 --contexts 3 --repeats 1"
  fi
  # shellcheck disable=SC2086
  step "bench-$type" 150 "$bin/lockstep" bench --model "$work/$type.gguf" --device cuda \
    --threads "$threads" --json $rows
  rm -f "$work/$type.gguf"
done

# The worst kernel, by its share of a copy's rate.
worst=$(python3 - "$out/bandwidth.jsonl" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
kernels = [line for line in lines if line["kernel"].endswith("_x1")]
print(min(kernels, key=lambda line: line["of_copy"])["kernel"] if kernels else "")
PY
)
if [ -n "$worst" ] && command -v ncu >/dev/null; then
  step ncu 90 ncu --set full --kernel-name "$worst" --launch-count 1 "$bin/gpu" bandwidth "$scale"
else
  absent ncu ncu
fi

python3 - "$out" "$device" "$kind" <<'PY'
import json, os, sys, time
out, device, kind = sys.argv[1:]
read = lambda name: [json.loads(line) for line in open(os.path.join(out, name)) if line.strip()]
report = {
    "device": device, "gpu": kind == "gpu", "date": time.strftime("%Y-%m-%d"),
    "steps": read("results.jsonl"), "bandwidth": read("bandwidth.jsonl"), "bench": {},
}
for name in sorted(os.listdir(out)):
    if name.startswith("bench-") and name.endswith(".log"):
        lines = [line for line in open(os.path.join(out, name)) if line.startswith("{")]
        if lines:
            report["bench"][name[6:-4]] = json.loads(lines[-1])
json.dump(report, open(os.path.join(out, "results.json"), "w"), indent=1)
if kind == "gpu":
    for line in report["bandwidth"]:
        print(f"{line['kernel']:40}{line['microseconds']:12.1f} us{line['gb_per_second']:10.1f} GB/s{100 * line['of_copy']:7.1f} % of a copy")
    for name, bench in report["bench"].items():
        for line in bench["measurements"]:
            print(f"{name:8}{line['name']:40}{line['tokens_per_second']['median']:12.1f} tokens/s")
PY
echo "results are in $out/results.json"
if [ "$kind" != gpu ]; then
  echo "not run on a GPU: this was a rehearsal on $device, whose times say nothing"
  [ $failed = 0 ] && exit 3
fi
exit $failed
