#!/usr/bin/env bash
# Starts a server on a free port and runs a command against it: run.sh MODEL COMMAND [ARG ...]
# In the arguments, URL stands for the server's address and PID for its process.
set -euo pipefail
model=$1
shift
lockstep=${CARGO_TARGET_DIR:-target}/release/lockstep
log=$(mktemp)
# A thousand sockets are more than many systems let a process have unasked.
ulimit -n "$(ulimit -Hn)"
LOCKSTEP_MAX_WAITING=${LOCKSTEP_MAX_WAITING:-2000} "$lockstep" serve --model "$model" --port 0 2> "$log" &
server=$!
trap 'kill -TERM $server 2> /dev/null || true; wait $server || true; rm -f "$log"' EXIT
for _ in $(seq 300); do
  address=$(sed -n 's/.*listening on \(http:[^ ]*\).*/\1/p' "$log")
  [ -n "$address" ] && break
  kill -0 $server 2> /dev/null || { cat "$log"; exit 1; }
  sleep 0.1
done
[ -n "$address" ] || { echo "the server did not start in 30 s"; cat "$log"; exit 1; }
arguments=("${@//URL/$address}")
"${arguments[@]/#PID/$server}" || { tail -20 "$log"; exit 1; }
