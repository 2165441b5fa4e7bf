#!/usr/bin/env bash
# Builds policy-core for a Cortex-M4 and for WebAssembly, runs both, and compares every decision with
# the host's; proves at link time that nothing in it can panic.
#
# What is missing comes from Debian's packages where apt-get may install it (root); otherwise the
# script ends with the name of what is missing. Build outputs go to $LOCKSTEP_CACHE
# (default: $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep).
set -euo pipefail
cd "$(dirname "$0")"
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET RUSTC RUSTC_BOOTSTRAP

cache=${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lockstep}
mkdir -p "$cache/targets"
CARGO_TARGET_DIR=$(cd "$cache/targets" && pwd)
export CARGO_TARGET_DIR

fail() {
  echo "policy-core/targets/run.sh: $*" >&2
  exit 1
}

step() { echo "== $*"; }

# Whether what a package is needed for is there.
present() {
  case $1 in
    rustc-web) [ -x /usr/bin/rustc ] && /usr/bin/rustc --print target-list | grep -qx wasm32v1-none ;;
    rust-web-src) [ -d "$(/usr/bin/rustc --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library/core" ] ;;
    cargo-web) [ -x /usr/bin/cargo ] ;;
    qemu-system-arm) command -v qemu-system-arm >/dev/null ;;
    nodejs) command -v node >/dev/null ;;
  esac
}

missing() {
  for package in rustc-web rust-web-src cargo-web qemu-system-arm nodejs; do
    present "$package" || echo "$package"
  done
}

install_missing() {
  local packages
  packages=$(missing | tr '\n' ' ')
  [ -n "$packages" ] || return 0
  command -v apt-get >/dev/null || fail "missing: $packages(Debian's package names), and there is no apt-get here to install them"
  [ "$(id -u)" = 0 ] || fail "missing: $packages; install them as root with: apt-get install --no-install-recommends $packages"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086  # one word a package
  { apt-get -o DPkg::Lock::Timeout=120 update && apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends $packages; } \
    >"$CARGO_TARGET_DIR/apt.log" 2>&1 || { tail -n 20 "$CARGO_TARGET_DIR/apt.log" >&2; fail "apt-get could not install: $packages"; }
  packages=$(missing | tr '\n' ' ')
  [ -z "$packages" ] || fail "still missing after apt-get installed it: $packages"
}

# Debian's compiler builds its own core library for the target; the linker is the toolchain's.
build_for() {
  RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 RUSTFLAGS="-C linker=$linker $3" \
    /usr/bin/cargo build --locked --quiet --release -Zbuild-std=core --target "$1" -p "$2"
}

# Whether a machine's decisions are the recorded ones, line by line.
compare() {
  diff -u --label recorded --label "$1" decisions.txt "$CARGO_TARGET_DIR/$1.txt" >&2 \
    || fail "the decisions of $1 differ from policy-core/targets/decisions.txt"
  echo "$1: $(wc -l <"$CARGO_TARGET_DIR/$1.txt") decisions, all as recorded"
}

step "install what is missing"
command -v cargo >/dev/null || fail "missing: cargo, the toolchain that builds the rest of the project"
linker=$(rustc --print sysroot)/lib/rustlib/$(rustc --print host-tuple)/bin/rust-lld
[ -x "$linker" ] || fail "missing: rust-lld, the linker that comes with the toolchain, looked for at $linker"
install_missing

step "style"
members=(-p native -p firmware -p wasm -p no-panic)
cargo fmt "${members[@]}" --check || fail "not formatted: in policy-core/targets, cargo fmt ${members[*]}"
cargo clippy --locked --quiet --release -p native -p no-panic -- -D warnings || fail "clippy has something to say"

step "the host's decisions"
cargo run --locked --quiet --release -p native >"$CARGO_TARGET_DIR/host.txt"
compare host

step "a Cortex-M4 (qemu, mps2-an386; 64 KiB of flash, 16 KiB of memory)"
build_for thumbv7em-none-eabi firmware "-C link-arg=-Tlink.x"
timeout 60 qemu-system-arm -M mps2-an386 -cpu cortex-m4 -nographic \
  -semihosting-config enable=on,target=native \
  -kernel "$CARGO_TARGET_DIR/thumbv7em-none-eabi/release/firmware" \
  </dev/null >"$CARGO_TARGET_DIR/cortex-m4.txt" \
  || { tail -n 5 "$CARGO_TARGET_DIR/cortex-m4.txt" >&2; fail "the firmware did not end well under qemu-system-arm"; }
compare cortex-m4

step "WebAssembly without an import (node)"
build_for wasm32v1-none wasm "-C linker-flavor=wasm-ld"
node wasm/run.mjs "$CARGO_TARGET_DIR/wasm32v1-none/release/wasm.wasm" >"$CARGO_TARGET_DIR/wasm.txt"
compare wasm

step "no reachable panic (a program that links only if there is none)"
cargo build --locked --quiet --release -p no-panic || fail "policy-core can panic: see the linker's message above"
"$CARGO_TARGET_DIR/release/no-panic" || fail "the linked program gave a wrong answer"
echo "linked and run"
if cargo build --locked --quiet --release -p no-panic --features reachable-panic 2>"$CARGO_TARGET_DIR/control.log"; then
  fail "the program links with a panic in it, so its linking proves nothing"
fi
grep -q a_panic_is_reachable_in_policy_core "$CARGO_TARGET_DIR/control.log" \
  || { tail -n 5 "$CARGO_TARGET_DIR/control.log" >&2; fail "the control failed for another reason than its panic"; }
echo "with a panic put in, it does not link"
