"""Mutated messages at every call and every port of a real agent.

    python -m scripts.attack.fuzz --messages 1000000 --out benchmarks/fuzz.json

One agent keeps a fleet with an authority and serves all roles with the smallest shipped models,
and a dashboard watches it. Callers, many at once, send requests that are nearly right: every call
of every service, joins by a code, frames to an archive's data port, HTTP/1.1, frames of HTTP/2, a
road's Unix socket, and the dashboard; as a member, as a program of its machine, as a stranger with
another fleet's certificate and as nobody. Told are what was answered by service and status, every
INTERNAL and UNKNOWN with its cause, tracebacks in the agent's log, what the processes held in each
tenth of the run, and whether the agent gives the same answers as before. The seed gives the
messages; which of them meet at the node is the machine's to say.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

from scripts.attack.dashboard_process import DashboardProcess, dashboard_of
from scripts.attack.readings import Readings
from scripts.attack.subject import Subject
from scripts.attack.tally import Tally
from scripts.attack.ways_in import Attacker, Ways, attackers, trusted
from scripts.bench.machine import command, machine, write_report

KEPT_SECONDS = 15.0
PAUSE_SECONDS = 0.02
"""Of who had his share of the messages, until others had theirs."""
LAST_WORDS = 60000
"""Characters of its log that are told of an agent that has ended."""
FIRST_MESSAGES = 100
"""Of each port, before shares are looked at."""


async def fuzz(
    subject: Subject, attacking: Sequence[Attacker], tally: Tally, arguments: argparse.Namespace
) -> None:
    """Lets each, seeded with a number of its own, go on until enough were sent in all, or in time.

    Raises `ChildProcessError` when the agent has ended.
    """

    async def go_on(attacker: Attacker, rng: random.Random) -> None:
        fuzzer = attacker.make(tally, rng)
        while tally.total < arguments.messages and time.perf_counter() < ends:
            most = FIRST_MESSAGES + attacker.at_most * tally.total
            if tally.messages[attacker.service] > most:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            await fuzzer.once()
            if not subject.agent.running:
                words = subject.agent.log[-LAST_WORDS:]
                raise ChildProcessError(f"the agent has ended: {subject.agent.wait()}\n{words}")

    ends = time.perf_counter() + arguments.seconds
    async with asyncio.TaskGroup() as tasks:
        for index, attacker in enumerate(attacking):
            tasks.create_task(go_on(attacker, random.Random(1_000_003 * arguments.seed + index)))


async def _keep_looking(subject: Subject, tally: Tally, kept: list[dict[str, float]]) -> None:
    """Notes what it keeps for callers, by messages, until cancelled."""
    while True:
        kept.append({"messages": tally.total, **await subject.kept_bytes()})
        await asyncio.sleep(KEPT_SECONDS)


async def run(
    ways: Ways, dashboard: DashboardProcess | None, arguments: argparse.Namespace
) -> dict[str, object]:
    """The whole run, and what it told."""
    subject, tally = ways.subject, Tally()
    await subject.differing_answers()
    before, used_before = subject.report(), await subject.used()
    readings = {"agent": Readings(subject.held, lambda: tally.total)}
    if dashboard is not None:
        readings["dashboard"] = Readings(dashboard.held, lambda: tally.total)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(ways.close)
        where = dashboard.address if dashboard is not None else ""
        attacking = await attackers(ways, arguments.callers, where)
        looking = [asyncio.create_task(each.run()) for each in readings.values()]
        kept: list[dict[str, float]] = []
        looking.append(asyncio.create_task(_keep_looking(subject, tally, kept)))
        began = time.perf_counter()
        await fuzz(subject, attacking, tally, arguments)
        seconds = time.perf_counter() - began
        for each in looking:
            each.cancel()
    by_tenth = {name: each.by_tenth() for name, each in readings.items()}
    return {
        **tally.report(),
        "seconds": seconds,
        "messages_per_second": tally.total / seconds,
        "held_before": before,
        "held_by_tenth": by_tenth["agent"],
        "rise_after_the_first_tenth": rise(by_tenth["agent"]),
        "kept_for_callers": kept,
        "held_after": subject.report(),
        "used_before": used_before,
        # Cards of requests that were right stay, as they may, and what was opened last.
        "used_after": await subject.used_at_rest(),
        "stalls": await subject.stalls(),
        "dashboard": told_of(dashboard, by_tenth.get("dashboard", [])),
        "log": subject.log_faults(),
        "counted_by_the_agent": await subject.errors_by_reason(),
        "answers_that_differ": await subject.differing_answers(),
    }


def rise(by_tenth: Sequence[Mapping[str, float]]) -> float:
    """By how much of itself the memory of the first tenth rose at most in those behind it."""
    first, *others = (tenth["resident_bytes"] for tenth in by_tenth)
    return max((later / first - 1.0 for later in others), default=0.0)


def told_of(
    dashboard: DashboardProcess | None, by_tenth: Sequence[Mapping[str, float]]
) -> dict[str, object] | None:
    """What became of it; None where there was none."""
    if dashboard is None:
        return None
    if not dashboard.running:
        return {"running": False, "complaints": dashboard.complaints()}
    return {
        "running": True,
        "held_by_tenth": list(by_tenth),
        "rise_after_the_first_tenth": rise(by_tenth),
        "held_after": asdict(dashboard.held()),
        "complaints": dashboard.complaints(),
    }


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3600.0, help="at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--callers", type=int, default=48, help="of gRPC, at once")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/fuzz.json"))
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Starts the agent and a dashboard, fuzzes them, writes the report."""
    arguments = parse(words)
    with trusted() as ways, dashboard_of(ways.subject.address) as dashboard:
        found = asyncio.run(run(ways, dashboard, arguments))
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
