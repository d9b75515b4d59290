"""Tokens a second through the SDKs, from a local node that has them already.

The TypeScript client under Node and under Bun, and the Python client beside them, read the
same streams, in turn: each measurement is a process of its own, which reads one generation
to warm up and one that counts. Rates are of tokens from the first block to the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from kakeya import AsyncClient

ROOT = Path(__file__).resolve().parents[2]
READER = ROOT / "sdks" / "typescript" / "scripts" / "stream_rate.mjs"
BLOCK_SIZES = (1, 4, 16)
GOAL_TOKENS_PER_SECOND = 5_000
WARM_MESSAGES = 2_000
SECONDS_A_READING = 120

COMMANDS = {
    "typescript_node": ["node", str(READER)],
    "typescript_bun": [str(ROOT / "node_modules" / ".bin" / "bun"), str(READER)],
    "python_async": [sys.executable, "-m", "scripts.bench.typescript", "--read"],
}


async def read_stream(address: str, block_size: int, count: int) -> dict[str, float]:
    """What stream_rate.mjs does, with the Python client."""
    async with AsyncClient(address) as client:
        session = await client.create_session(str(block_size))
        await session.append([1])
        async for _ in session.generate(WARM_MESSAGES * block_size):
            pass
        started = time.perf_counter()
        first, seen = 0.0, 0
        async for tokens in session.generate(count):
            first = first or time.perf_counter() - started
            seen += len(tokens.token_ids)
        seconds = time.perf_counter() - started
        await session.close()
    if seen != count:
        raise SystemExit(f"{seen} of {count} tokens arrived")
    return {"seconds": seconds, "first_seconds": first}


def measure(address: str, messages: int, rounds: int) -> dict[str, dict[str, dict[str, int]]]:
    """Rates by client and block size."""
    rates: dict[tuple[str, int], list[float]] = {}
    for number in range(rounds):
        for block_size in BLOCK_SIZES:
            count = messages * block_size
            for client, command in COMMANDS.items():
                words = [*command, address, str(block_size), str(count)]
                found = json.loads(output(*words))
                streamed = found["seconds"] - found["first_seconds"]
                rates.setdefault((client, block_size), []).append((count - block_size) / streamed)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return {
        client: {
            f"block_{block_size}": {
                "tokens_per_second_median": round(statistics.median(values)),
                "tokens_per_second_lowest": round(min(values)),
                "tokens_per_second_highest": round(max(values)),
            }
            for block_size in BLOCK_SIZES
            if (values := rates[client, block_size])
        }
        for client in COMMANDS
    }


def output(*command: str) -> str:
    """What a program prints."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=SECONDS_A_READING
    )
    return done.stdout.strip()


def machine() -> dict[str, str | int]:
    """What the figures are measured on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": len(names),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "grpcio": version("grpcio"),
        "node": output("node", "--version").removeprefix("v"),
        "bun": output(COMMANDS["typescript_bun"][0], "--version"),
    }


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=20_000, help="messages of one generation")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where to write JSON; else it is printed")
    parser.add_argument("--read", nargs=3, metavar=("ADDRESS", "BLOCK", "TOKENS"),
                        help=argparse.SUPPRESS)  # fmt: skip
    return parser.parse_args()


def main() -> None:
    """Measures, and writes or prints JSON."""
    arguments = parse()
    if arguments.read:
        address, block_size, count = arguments.read
        print(json.dumps(asyncio.run(read_stream(address, int(block_size), int(count)))))
        return
    node = subprocess.Popen(
        [sys.executable, "-m", "scripts.bench.streaming_node"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    if node.stdin is None or node.stdout is None:
        raise SystemExit("the node has no pipes")
    try:
        address = json.loads(node.stdout.readline())["address"]
        clients = measure(address, arguments.messages, arguments.rounds)
    finally:
        node.stdin.close()
        node.wait(20)
    lowest = min(
        figures["block_1"]["tokens_per_second_median"]
        for client, figures in clients.items()
        if client.startswith("typescript")
    )
    report = {
        "command": "python -m scripts.bench.typescript",
        "machine": machine(),
        "messages": arguments.messages,
        "rounds": arguments.rounds,
        "node_is": "one local process, messages serialized before the stream begins, plain gRPC",
        "clients": clients,
        "goal_tokens_per_second": GOAL_TOKENS_PER_SECOND,
        "goal_met": lowest >= GOAL_TOKENS_PER_SECOND,
    }
    text = json.dumps(report, indent=2) + "\n"
    if arguments.out:
        arguments.out.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
