"""Many streaming connections at once, for a while: python soak.py http://127.0.0.1:8000 --connections 1000 --seconds 600 --pid PID

Fails if a request fails otherwise than with a declared 429, or if the server's memory (of --pid, from /proc) grows by more than a fifth between
the end of the first quarter and the end. Only the standard library is needed.
"""

import argparse
import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("--connections", type=int, default=1000)
parser.add_argument("--seconds", type=float, default=30)
parser.add_argument("--max-tokens", type=int, default=16)
parser.add_argument("--pid", type=int)
args = parser.parse_args()
target = urlsplit(args.url)
counts = {"served": 0, "told 429": 0, "failed": 0, "tokens": 0}
failures = []


def request(seed):
    body = json.dumps({
        "messages": [{"role": "user", "content": f"number {seed}"}], "max_tokens": args.max_tokens,
        "stream": True, "ignore_eos": True, "seed": seed, "stream_options": {"include_usage": True},
    }).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {target.netloc}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def one(reader, writer, seed):
    writer.write(request(seed))
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status = int(head.split(" ", 2)[1])
    headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
    if status != 200:
        body = await reader.readexactly(int(headers["content-length"]))
        if status == 429 and "retry-after" in headers:
            counts["told 429"] += 1
            await asyncio.sleep(float(headers["retry-after"]))
            return
        raise RuntimeError(f"{status} {body[:200]}")
    text = b""
    while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
        text += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    if not text.endswith(b"data: [DONE]\n\n") or b'data: {"error"' in text:
        raise RuntimeError(f"a stream ended with {text[-200:]}")
    usage = json.loads(text.split(b"data: ")[-2])["usage"]
    counts["served"] += 1
    counts["tokens"] += usage["completion_tokens"]


async def client(number, until):
    seed = number
    while time.monotonic() < until:
        try:
            reader, writer = await asyncio.open_connection(target.hostname, target.port)
            while time.monotonic() < until:
                await one(reader, writer, seed)
                seed += args.connections
            writer.close()
        except Exception as error:
            counts["failed"] += 1
            failures.append(repr(error))
            await asyncio.sleep(0.1)


def memory():
    if args.pid is None:
        return 0
    with open(f"/proc/{args.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


async def main():
    until = time.monotonic() + args.seconds
    clients = [asyncio.create_task(client(number, until)) for number in range(args.connections)]
    await asyncio.sleep(args.seconds / 4)
    early = memory()
    await asyncio.gather(*clients)
    late = memory()
    print(counts, f"memory {early} -> {late} kB")
    for failure in failures[:5]:
        print(failure, file=sys.stderr)
    grown = args.pid is not None and late > early * 1.2
    sys.exit(bool(counts["failed"]) or grown or not counts["served"])


asyncio.run(main())
