#!/usr/bin/env bash
# Proves the kernels on a machine that has no GPU:
#   1. the checked-in PTX is what the sources compile to, byte for byte;
#   2. the assemblers of CUDA 13.0 (six architectures) and 11.8 (sm_80) take it without a warning,
#      within the budgets below and without spills;
#   3. the machine code has the instructions it should have, and no local memory;
#   4. in the interpreter every portable kernel equals the CPU backend's reference bit for bit, every
#      fast one its rules, and every planted bug is caught, or explained in tests/proof/allowed.rs.
# Nothing here runs on a GPU. Needs Python 3, a C++ compiler, cargo, and once the package registry.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tools.sh"

ARCHITECTURES="sm_80 sm_86 sm_89 sm_90 sm_100 sm_120"
# The most registers of a thread and bytes of static shared memory that a kernel may have.
budget() {
  case $1 in
    linear_*_x64) echo 168 43008 ;;
    linear_*_x1) echo 80 0 ;;
    linear_*) echo 128 0 ;;
    attention_split_*) echo 96 512 ;;
    top_k_*) echo 64 8192 ;;
    fast_linear_*_narrow) echo 80 45056 ;;
    # One block to a multiprocessor: sums and stages take what it has.
    fast_linear_*_wide) echo 240 49152 ;;
    *) echo 64 512 ;;
  esac
}
MODULES="rows embed linear matrix attention ranks fast"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Prints "kernel registers shared spills" for each entry of a listing of `ptxas -v`.
resources() {
  awk '
    /Compiling entry function/ { split($0, part, "\047"); kernel = part[2] }
    /bytes spill stores/ { spills = $1 + $5 + $9 }
    /Used [0-9]+ registers/ {
      registers = $0; sub(/.*Used /, "", registers); sub(/ registers.*/, "", registers)
      shared = 0
      if ($0 ~ /bytes smem/) { shared = $0; sub(/ bytes smem.*/, "", shared); sub(/.*, /, "", shared) }
      print kernel, registers, shared, spills
    }' "$1"
}

assemble() {
  local ptxas=$1 architecture=$2 name=$3
  "$ptxas" -v --warning-as-error -arch="$architecture" "$here/ptx/$name.ptx" \
    -o "$work/$name.$architecture.cubin" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
  }
  resources "$work/log" >"$work/resources"
  if [ "$(wc -l <"$work/resources")" != "$(grep -c '\.entry' "$here/ptx/$name.ptx")" ]; then
    echo "$name for $architecture: the assembler's listing is not understood" >&2
    exit 1
  fi
  while read -r kernel registers shared spills; do
    read -r most_registers most_shared <<<"$(budget "$kernel")"
    if [ "$registers" -gt "$most_registers" ] || [ "$shared" -gt "$most_shared" ] || [ "$spills" != 0 ]; then
      echo "$kernel for $architecture: $registers registers, $shared bytes shared, $spills spilled" >&2
      exit 1
    fi
  done <"$work/resources"
  sort -k2 -n "$work/resources" | tail -1 |
    { read -r kernel registers _; printf '  %-8s %-10s %3d kernels, at most %3d registers (%s), no spills\n' \
        "$architecture" "$name" "$(wc -l <"$work/resources")" "$registers" "$kernel"; }
}

# Fails unless the machine code of `kernel` has every one of the instructions named.
has() {
  local kernel=$1 instruction
  shift
  for instruction in "$@"; do
    if ! grep -q "$instruction" "$work/sass/$kernel"; then
      echo "$kernel: no $instruction in its machine code" >&2
      exit 1
    fi
  done
}

echo "== the PTX is what the sources compile to"
"$here/build-ptx.sh" --check

echo "== assemblers"
for name in $MODULES; do
  for architecture in $ARCHITECTURES; do
    assemble "$CUDA/bin/ptxas" "$architecture" "$name"
  done
  echo "  CUDA 11.8:"
  mkdir -p "$work/old"
  assemble "$OLD_PTXAS" sm_80 "$name"
  # The disassembly below reads what the current assembler makes.
  "$CUDA/bin/ptxas" -arch=sm_90 "$here/ptx/$name.ptx" -o "$work/$name.sm_90.cubin"
done

echo "== machine code for sm_90"
mkdir "$work/sass"
for name in $MODULES; do
  "$CUDA/bin/nvdisasm" -c "$work/$name.sm_90.cubin" |
    awk -v folder="$work/sass/" '/^\.text\./ { file = $1; sub(/^\.text\./, "", file); sub(/:$/, "", file) }
      file { print > (folder file) }'
done
if [ "$(ls "$work/sass" | wc -l)" != "$(cat "$here"/ptx/*.ptx | grep -c '\.entry')" ]; then
  echo "the disassembly does not show every kernel" >&2
  exit 1
fi
if grep -lE '\b(LDL|STL)\b' "$work"/sass/*; then
  echo "the kernels above use local memory" >&2
  exit 1
fi
# MUFU.RCP and MUFU.RSQ begin the assembler's own exact divisions and roots, whose special cases
# also flush; that no kernel asks for either is checked in the PTX.
if grep -lE 'MUFU\.(EX2|SIN|COS|LG2|TANH)' "$work"/sass/* || grep -lE '\.(approx|ftz)' "$here"/ptx/*.ptx; then
  echo "the files above approximate or flush to zero" >&2
  exit 1
fi
for format in q4_0 q4_1 q5_0 q5_1 q8_0 iq4_nl mxfp4 q2_k q3_k q4_k q5_k q6_k iq4_xs; do
  # The vector kernel's weights by 16 bytes; integer tensor cores; asynchronous copies of 16 bytes.
  has "linear_${format}_x1" 'IDP\.4A' 'LDG\.E\.128' FFMA BAR SHFL
  has "linear_${format}_x8" 'IMMA\.168' 'LDG\.E\.64' FFMA BAR
  has "linear_${format}_x64" 'IMMA\.168' 'LDGSTS\.E\.BYPASS\.128' LDGDEPBAR FFMA BAR
done
for format in f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q4_k q5_k q6_k; do
  for division in narrow wide; do
    has "fast_linear_${format}_$division" 'HMMA\.16816\.F32' 'LDGSTS\.E\.BYPASS\.128' 'LDSM\.16' LDGDEPBAR BAR
  done
done
has quantise_256 'LDG\.E\.128' 'STG\.E\.64'
has rms_norm SHFL BAR
for type in f16 f32; do
  has "attention_split_$type" SHFL BAR FFMA 'LDGSTS\.E\.BYPASS\.128' LDGDEPBAR
done
echo "  $(ls "$work/sass" | wc -l) kernels: no local memory, no approximation; IMMA, IDP.4A, asynchronous copies and 16-byte loads where they belong"

echo "== in the interpreter (not on a GPU)"
cd "$here/.."
cargo test --release -p ptx-interpreter
cargo test --release -p lockstep-kernels --test forward
cargo test --release -p lockstep-kernels --test proof -- --include-ignored --nocapture

echo "== through the driver"
cargo test --release -p lockstep --test device
if [ -e /proc/driver/nvidia/version ]; then
  machine="the GPU of this machine"
else
  # The stand-in is found only by these links.
  ln -s "$(realpath "${CARGO_TARGET_DIR:-target}")/release/deps/libcuda_stand_in.so" "$work/libcuda.so"
  ln -s "$work/libcuda.so" "$work/libcuda.so.1"
  export LD_LIBRARY_PATH="$work"
  machine="the interpreter behind the stand-in for the driver, not a GPU"
fi
export LOCKSTEP_TEST_DEVICE=cuda REQUIRE_CUDA=1
cargo test --release -p lockstep-kernels --test proof -- --nocapture through_a_driver
cargo test --release -p lockstep-kernels --test forward -- --nocapture through_a_driver
if [ ! -e /proc/driver/nvidia/version ]; then
  echo "== rehearsal of tests/gpu/run.sh on the stand-in"
  tests/gpu/build.sh
  # It ends with 3 where all went well on what is no GPU.
  tests/gpu/run.sh "$work/gpu" || [ $? = 3 ]
fi
echo "the kernels are proved in the interpreter, and the backend on $machine"
