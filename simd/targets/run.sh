#!/usr/bin/env bash
# Runs every kernel on every path of this machine, and of a 64-bit Arm in an emulator, over seeded
# inputs; compares the bits of every result with those of the scalar reference in digests.txt.
#
# `run.sh --update` writes digests.txt anew, from the reference on this machine: for new cases only,
# since whatever else changes a digest changes the numerics contract.
#
# What is missing comes from Debian's packages where apt-get may install it (root); otherwise the
# script ends with the name of what is missing. Build outputs go to $LOCKSTEP_CACHE
# (default: $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep).
set -euo pipefail
cd "$(dirname "$0")"
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET RUSTC RUSTC_BOOTSTRAP

cache=${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lockstep}
mkdir -p "$cache/simd-targets"
CARGO_TARGET_DIR=$(cd "$cache/simd-targets" && pwd)
export CARGO_TARGET_DIR

fail() {
  echo "simd/targets/run.sh: $*" >&2
  exit 1
}

step() { echo "== $*"; }

# Whether what a package is needed for is there.
present() {
  case $1 in
    rustc-web) [ -x /usr/bin/rustc ] && /usr/bin/rustc --print target-list | grep -qx aarch64-unknown-none ;;
    rust-web-src) [ -d "$(/usr/bin/rustc --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library/alloc" ] ;;
    cargo-web) [ -x /usr/bin/cargo ] ;;
    qemu-user) command -v qemu-aarch64 >/dev/null ;;
  esac
}

missing() {
  for package in rustc-web rust-web-src cargo-web qemu-user; do
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

# Whether each of the named paths gave every digest as recorded, and no other path gave any.
compare() {
  local machine=$1 path found="$CARGO_TARGET_DIR/$1.txt"
  shift
  [ "$(cut -d: -f1 "$found" | uniq | tr '\n' ' ')" = "$* " ] || fail "$machine did not run the paths $*"
  for path in "$@"; do
    sed -n "s/^$path: //p" "$found" | diff -u --label recorded --label "$machine, $path" digests.txt - >&2 \
      || fail "the digests of $path on $machine differ from simd/targets/digests.txt"
  done
  echo "$machine: $(wc -l <digests.txt) digests each, all as recorded: $*"
}

step "install what is missing"
command -v cargo >/dev/null || fail "missing: cargo, the toolchain that builds the rest of the project"
linker=$(rustc --print sysroot)/lib/rustlib/$(rustc --print host-tuple)/bin/rust-lld
[ -x "$linker" ] || fail "missing: rust-lld, the linker that comes with the toolchain, looked for at $linker"
install_missing

step "style"
members=(-p native -p aarch64)
cargo fmt "${members[@]}" --check || fail "not formatted: in simd/targets, cargo fmt ${members[*]}"
cargo clippy --locked --quiet --release -p native -- -D warnings || fail "clippy has something to say"

step "this machine"
cargo run --locked --quiet --release -p native >"$CARGO_TARGET_DIR/host.txt"
if [ "${1:-}" = --update ]; then
  sed -n 's/^reference: //p' "$CARGO_TARGET_DIR/host.txt" >digests.txt
fi
read -ra paths <<<"$(cut -d: -f1 "$CARGO_TARGET_DIR/host.txt" | uniq | tr '\n' ' ')"
compare host reference scalar "${paths[@]:2}"

step "a 64-bit Arm (qemu-aarch64)"
# Debian's compiler builds its own core library for the target; the linker is the toolchain's.
RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 RUSTFLAGS="-C linker=$linker -D warnings" \
  /usr/bin/cargo build --locked --quiet --release -Zbuild-std=core,alloc --target aarch64-unknown-none -p aarch64
emulate() {
  timeout 300 qemu-aarch64 -cpu "$1" "$CARGO_TARGET_DIR/aarch64-unknown-none/release/aarch64" \
    </dev/null >"$CARGO_TARGET_DIR/$1.txt" \
    || { tail -n 5 "$CARGO_TARGET_DIR/$1.txt" >&2; fail "the program did not end well on a $1"; }
}
emulate cortex-a53
compare cortex-a53 reference scalar neon
emulate cortex-a76
compare cortex-a76 reference scalar neon neon-dotprod
