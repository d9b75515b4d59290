"""What those who watch a node cost those who generate on it.

    python -m scripts.bench.watchers --watchers 1 20 --out benchmarks/watchers.json

One agent serves the verifier, and some sessions generate at the same time, once a round
for each number of watchers, in an order shuffled anew: nobody watches, or so many
connections each follow WatchNode and WatchSessions, in a process of their own. Told are
tokens a second of all sessions together, and processor seconds of the agent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import statistics
import time
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from pathlib import Path

import psutil

from kakeya import AsyncClient, AsyncSession
from scripts.bench.machine import command, machine, write_report
from scripts.support.agent_process import LocalFleet

PATIENCE_SECONDS = 60.0
SETTLE_SECONDS = 2.0
PROMPT = [(7 * index) % 512 + 300 for index in range(64)]


@dataclass
class Measured:
    """Of each round."""

    tokens_per_second: list[float] = field(default_factory=list)
    cpu_seconds_a_thousand_tokens: list[float] = field(default_factory=list)

    def report(self) -> dict[str, object]:
        """Medians and ranges."""
        return {
            name: {"median": statistics.median(values), "least": min(values), "most": max(values)}
            for name, values in vars(self).items()
        }


async def follow(address: str, count: int, ready: Barrier) -> None:
    """`count` connections that read both streams for good."""

    async def one() -> None:
        async with AsyncClient(address) as client:
            streams = client.fleet.watch_node(), client.watch_sessions()
            await asyncio.gather(*(drain(stream) for stream in streams))

    async def drain(stream: AsyncIterable[object]) -> None:
        async for _ in stream:
            pass

    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(one())
        # What a node did before comes first, and is not what is measured.
        await asyncio.sleep(SETTLE_SECONDS)
        await asyncio.to_thread(ready.wait, PATIENCE_SECONDS)


def watch(address: str, count: int, ready: Barrier) -> None:
    """The process of the watchers."""
    asyncio.run(follow(address, count, ready))


@contextmanager
def watched_by(address: str, count: int) -> Iterator[None]:
    """While it lasts so many watch."""
    if count == 0:
        yield
        return
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(2)
    process = context.Process(target=watch, args=(address, count, ready))
    process.start()
    try:
        ready.wait(PATIENCE_SECONDS)
        yield
    finally:
        process.terminate()
        process.join(PATIENCE_SECONDS)


async def generate(address: str, model: str, sessions: int, tokens: int) -> float:
    """Seconds until all sessions have written their tokens."""
    async with AsyncClient(address) as client:

        async def one(session: AsyncSession) -> None:
            async for _ in session.generate(tokens):
                pass

        opened = [
            await client.create_session(model, speculation="off", kv_strategy="sink_window")
            for _ in range(sessions)
        ]
        for index, session in enumerate(opened):
            await session.append([*PROMPT, 300 + index])
        began = time.perf_counter()
        await asyncio.gather(*(one(session) for session in opened))
        seconds = time.perf_counter() - began
        for session in opened:
            await session.close()
        return seconds


def cpu_seconds(process: psutil.Process) -> float:
    """Of the agent until now, all threads."""
    times = process.cpu_times()
    return float(times.user + times.system)


def run(arguments: argparse.Namespace, address: str, pid: int) -> dict[int, Measured]:
    """All rounds."""
    order = random.Random(arguments.seed)
    agent = psutil.Process(pid)
    counts = [0, *arguments.watchers]
    measured = {count: Measured() for count in counts}
    work = arguments.verifier, arguments.sessions, arguments.tokens
    asyncio.run(generate(address, *work))
    for _ in range(arguments.rounds):
        order.shuffle(counts)
        for count in counts:
            with watched_by(address, count):
                before = cpu_seconds(agent)
                seconds = asyncio.run(generate(address, *work))
                spent = cpu_seconds(agent) - before
            total = arguments.sessions * arguments.tokens
            measured[count].tokens_per_second.append(total / seconds)
            measured[count].cpu_seconds_a_thousand_tokens.append(1000 * spent / total)
    return measured


def main() -> None:
    """Starts the agent, measures, writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--verifier", default="tiny", help="a shipped name or a hub id")
    parser.add_argument("--watchers", type=int, nargs="+", default=[1, 20])
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/watchers.json"))
    arguments = parser.parse_args()
    with LocalFleet("bench-watchers") as fleet:
        agent = fleet.start("one", serve=[f"verifier={arguments.verifier}"])
        measured = run(arguments, agent.address, agent.pid)
    alone = statistics.median(measured[0].tokens_per_second)
    sides = {
        str(count): {
            **each.report(),
            "speed_over_unwatched": statistics.median(each.tokens_per_second) / alone,
        }
        for count, each in measured.items()
    }
    report = {
        "command": command(__file__),
        "machine": machine(),
        "verifier": arguments.verifier,
        "sessions": arguments.sessions,
        "tokens_a_session": arguments.tokens,
        "rounds": arguments.rounds,
        "seed": arguments.seed,
        "by_watchers": sides,
    }
    write_report(arguments.out, report)
    print(json.dumps(sides, indent=2))


if __name__ == "__main__":
    main()
