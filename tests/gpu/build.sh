#!/usr/bin/env bash
# Builds, on a machine with Rust and without a GPU, everything that run.sh runs, into tests/gpu/bin.
# The machine with the GPU then needs no compiler. The folder has about 40 MB.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=tests/gpu/bin
mkdir -p "$bin"

cargo build --release -p lockstep
cargo build --release -p lockstep-kernels --example gpu
cargo build --release -p lockstep --example tiny_model
target=${CARGO_TARGET_DIR:-target}/release
cp "$target/lockstep" "$target/examples/gpu" "$target/examples/tiny_model" "$bin/"
# The executables of the tests: cargo says where they are.
for test in proof forward; do
  path=$(cargo test --release -p lockstep-kernels --test "$test" --no-run --message-format=json |
    python3 -c 'import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and "test" in message["target"]["kind"]: print(message["executable"])')
  cp "$path" "$bin/$test"
done
strip "$bin"/*
ls -l "$bin"
