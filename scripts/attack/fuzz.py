"""Mutated messages at every call and every port of a real agent.

    python -m scripts.attack.fuzz --messages 1000000 --out benchmarks/fuzz.json

One agent serves all roles with the smallest shipped models. Callers, many at once, send requests
that are nearly right: every call of every service, frames to an archive's data port, HTTP/1.1,
frames of HTTP/2, and a road's Unix socket. Told are what was answered by service and status,
every INTERNAL and UNKNOWN with its cause, tracebacks in the agent's log, what the agent held in
each tenth of the run, and whether it gives the same answers as before. The seed gives the
messages; which of them meet at the node is the machine's to say.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

import grpc.aio

from scripts.attack.archive_frames import ArchiveFuzzer
from scripts.attack.calls import CallFuzzer
from scripts.attack.http2_frames import FrameFuzzer
from scripts.attack.http_requests import HttpFuzzer
from scripts.attack.readings import Readings
from scripts.attack.road_sockets import RoadFuzzer
from scripts.attack.subject import Subject, attacked
from scripts.attack.tally import Tally
from scripts.bench.machine import command, machine, write_report

CALLERS_A_PORT = 16
"""Callers of gRPC for each one of another port, where messages are sent faster."""


class Fuzzer(Protocol):
    """A caller who does one wrong thing after the other."""

    async def once(self) -> None:
        """Does the next one."""
        ...


async def fuzz(
    subject: Subject,
    makes: Sequence[Callable[[random.Random], Fuzzer]],
    tally: Tally,
    seed: int,
    messages: int,
) -> None:
    """Lets each fuzzer, seeded with a number of its own, go on until so many were sent in all.

    Raises `ChildProcessError` when the agent has ended.
    """

    async def go_on(fuzzer: Fuzzer) -> None:
        while tally.total < messages:
            await fuzzer.once()
            if not subject.agent.running:
                raise ChildProcessError(f"the agent has ended: {subject.agent.wait()}")

    async with asyncio.TaskGroup() as tasks:
        for index, make in enumerate(makes):
            tasks.create_task(go_on(make(random.Random(1_000_003 * seed + index))))


async def run(subject: Subject, arguments: argparse.Namespace) -> dict[str, object]:
    """The whole run, and what it told."""
    tally = Tally()
    readings = Readings(subject, lambda: tally.total)
    await subject.differing_answers()
    before = subject.report()
    archives = await subject.archive_address()
    async with AsyncExitStack() as stack:

        async def channel(address: str) -> grpc.aio.Channel:
            # Callers with the same options would share one connection.
            options = (("grpc.use_local_subchannel_pool", 1),)
            opened = grpc.aio.insecure_channel(address, options=options)
            return await stack.enter_async_context(opened)

        makes: list[Callable[[random.Random], Fuzzer]] = []
        for index in range(arguments.callers):
            own, kept = await channel(subject.address), await channel(archives)
            makes.append(partial(CallFuzzer, own, kept, tally))
            if index % CALLERS_A_PORT == 0:
                makes += [
                    partial(ArchiveFuzzer, own, kept, tally),
                    partial(HttpFuzzer, subject.http_address, tally),
                    partial(FrameFuzzer, subject.address, tally),
                    partial(RoadFuzzer, own, tally),
                ]
        looking = asyncio.create_task(readings.run())
        began = time.perf_counter()
        await fuzz(subject, makes, tally, arguments.seed, arguments.messages)
        seconds = time.perf_counter() - began
        looking.cancel()
    return {
        **tally.report(),
        "seconds": seconds,
        "messages_per_second": tally.total / seconds,
        "held_before": before,
        "held_by_tenth": readings.by_tenth(),
        "held_after": subject.report(),
        "log": subject.log_faults(),
        "counted_by_the_agent": await subject.errors_by_reason(),
        "answers_that_differ": await subject.differing_answers(),
    }


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--callers", type=int, default=48, help="of gRPC, at once")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/fuzz.json"))
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Starts the agent, fuzzes it, writes the report."""
    arguments = parse(words)
    with attacked("fuzz") as subject:
        found = asyncio.run(run(subject, arguments))
    report = {
        "command": command(__file__),
        "machine": machine(),
        "seed": arguments.seed,
        "callers": arguments.callers,
        **found,
    }
    write_report(arguments.out, report)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
