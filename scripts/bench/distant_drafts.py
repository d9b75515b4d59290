"""What sessions that choose their drafts themselves come to, their proposers on another machine.

    python -m scripts.bench.distant_drafts

As `scripts.bench.automatic_drafts`, one session at a time, with a network between the verifier and
the node that drafts: another network namespace behind a wire of a stated round trip, and another
kernel by its name, so that nothing goes by memory that both share. Nor is the way to the memory
one: the near node replays what its verifier said when it was alone, in the time that it took
(`scripts.bench.recorded_node`), while the far one drafts on a processor of its own. With
`--computing` the near one computes, on another processor, and each is slower while the other does.
A fleet for each round trip, of whose proposers nothing is known at first. Needs what
`scripts.bench.network_namespaces` does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from kakeya import AsyncClient
from kakeya_fleet.engine.backends.dflash.config import read_config
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from scripts.bench.automatic_drafts import PROPOSERS, answered
from scripts.bench.machine import command, machine, write_report
from scripts.bench.network_namespaces import FAR, NEAR, TwoNamespaces, what_is_missing
from scripts.bench.plain_drafts import MODEL, Place, drafted_for
from scripts.bench.recorded_answers import record
from scripts.bench.recorded_node import replaying
from scripts.bench.slow_wire import Line
from scripts.bench.trained_drafter import KINDS, SEED, SHIPPED, TEMPERATURES
from scripts.faults.scene import until
from scripts.support.agent_process import LocalFleet

ROUND_TRIPS = (0.0, 0.005, 0.020)
"""In seconds, besides what the kernel takes."""
NEAR_ENOUGH = 0.9
BOOT_NAME = "/proc/sys/kernel/random/boot_id"
NODE = {"KAKEYA_INSECURE": "true", "KAKEYA_LINKS": "grpc"}


def on_another_machine(hosts: TwoNamespaces, folder: Path) -> Place:
    """Behind the wire, on a kernel of another name, which is kept in `folder`."""
    boot_name = folder / "boot_id"
    boot_name.write_text(f"{uuid.uuid4()}\n")
    named = f'mount --bind {boot_name} {BOOT_NAME} && exec "$@"'

    def behind(words: Sequence[str]) -> list[str]:
        own = on_processor(1, words)
        return hosts.behind(["unshare", "--mount", "sh", "-c", named, "sh", *own])

    return Place(f"{FAR}:0", behind, NODE)


def on_processor(number: int, words: Sequence[str]) -> list[str]:
    """The command that runs `words` on one processor, which the other machine does not use."""
    return ["taskset", "--cpu-list", str(number), *words]


async def knows_the_way(client: AsyncClient, node_id: str, round_trip_seconds: float) -> float:
    """Waits until the node has measured it; the seconds that it has."""
    measured = 0.0

    async def known() -> bool:
        nonlocal measured
        nodes = await client.fleet.nodes()
        ways = {node.node_id: node.round_trip_seconds or 0.0 for node in nodes}
        measured = ways.get(node_id, 0.0)
        return measured > NEAR_ENOUGH * round_trip_seconds

    if await until(known) == math.inf:
        raise RuntimeError(f"the way is measured to take {measured} s, not {round_trip_seconds}")
    return measured


def recorded(folder: Path, count: int) -> None:
    """Has the verifier answer all prompts, for `scripts.bench.recorded_node`."""
    heats = [SamplingParameters(temperature=each, seed=SEED) for each in TEMPERATURES]
    questions = [question for kind in KINDS.values() for question in kind]
    taps = read_config(resolve_model(SHIPPED).path).taps
    record(MODEL, questions, heats, count, taps).save(folder)


async def measured(
    hosts: TwoNamespaces,
    round_trip_seconds: float,
    count: int,
    rounds: int,
    known: Path | None = None,
) -> dict[str, object]:
    """All rounds behind one wire, and what they come to; the near node replays what is `known`."""
    await asyncio.to_thread(hosts.become, Line(delay_seconds=round_trip_seconds / 2))
    with tempfile.TemporaryDirectory() as folder, LocalFleet("distant-drafts") as fleet:

        def beside(words: Sequence[str]) -> list[str]:
            # What replays computes nothing that the far one would have to wait for.
            return on_processor(0, words) if known is None else replaying(known, words)

        near = Place(f"{NEAR}:0", beside, NODE)
        far = on_another_machine(hosts, Path(folder))
        async with AsyncExitStack() as stack:
            client, node_id, ids = await drafted_for(fleet, PROPOSERS, stack, near=near, far=far)
            nodes = await client.fleet.nodes()
            if len({node.card.host_id for node in nodes if node.card is not None}) != 2:
                raise RuntimeError("both nodes are on one machine: what is measured is another way")
            way = await knows_the_way(client, node_id, round_trip_seconds)
            found = await answered(client, ids, count, rounds)
    return {
        "round_trip_seconds": round_trip_seconds,
        "round_trip_seconds_measured": way,
        **found,
    }


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--round-trips", type=float, nargs="+", default=list(ROUND_TRIPS))
    parser.add_argument(
        "--computing",
        action="store_true",
        help="the near node computes its forwards, by the way to the memory that the far one has",
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/distant_drafts.json"))
    asked = parser.parse_args(words)
    lacking = what_is_missing()
    if lacking:
        raise SystemExit(lacking)
    with tempfile.TemporaryDirectory() as folder, TwoNamespaces() as hosts:
        known = None if asked.computing else Path(folder)
        if known is not None:
            recorded(known, asked.tokens)
        cells = [
            asyncio.run(measured(hosts, seconds, asked.tokens, asked.rounds, known))
            for seconds in asked.round_trips
        ]
    report = {
        "command": command(__file__),
        "machine": machine(),
        "model": MODEL,
        "answer_tokens": asked.tokens,
        "seed": SEED,
        "cells": cells,
    }
    write_report(asked.out, report)
    print(json.dumps([cell["rounds"] for cell in cells], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
