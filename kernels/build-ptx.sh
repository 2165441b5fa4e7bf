#!/usr/bin/env bash
# Compiles kernels/cuda/*.cu into kernels/ptx/*.ptx with pinned tools.
#   build-ptx.sh          writes the PTX
#   build-ptx.sh --check  fails when the checked-in PTX is not what the sources compile to
# Needs Python 3 with venv, a C++ compiler, and the package registry at the first call.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tools.sh"

# The assembler of CUDA 13 stamps an ISA version that older drivers refuse; nothing newer than
# 7.4 is used, and verify.sh has an assembler of that age prove it.
lower_header() {
  sed -e 's/^\.version .*/.version 7.4/' -e 's/^\.target .*/.target sm_80/'
}

compile() {
  "$CUDA/bin/nvcc" -ptx -arch=compute_80 -O3 -std=c++17 -fmad=false -Werror all-warnings "$1" -o - \
    | lower_header
}

out=$here/ptx
check=
if [ "${1:-}" = --check ]; then
  check=1
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
mkdir -p "$out"
for source in "$here"/cuda/*.cu; do
  name=$(basename "$source" .cu)
  # Compiled from within the folder, so that no path reaches the text.
  (cd "$here/cuda" && compile "$name.cu") >"$out/$name.ptx"
  if [ -n "$check" ]; then
    cmp "$here/ptx/$name.ptx" "$out/$name.ptx"
  fi
done
echo "${check:+checked: }$(ls "$out" | wc -l) PTX files"
