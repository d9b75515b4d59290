"""How fast tensors travel between two processes, by way and payload, and what promotion does.

    python -m scripts.bench.links --out benchmarks/links.json

Two parts. `payloads`: each way carries each payload, the ways in an order shuffled anew
every round: one TCP connection, an mlx.distributed ring with nothing around it (each
payload one array, and in pieces of 4 MiB), this engine's roads alone, and its links
over each road. `promotion`: links that choose for themselves, one after the other, each
with a payload drawn from the seed, beside one that stays on gRPC: what a tensor takes
before a road stands, and after the choice. All on this machine, over loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from kakeya_fleet.node.links.protocol.contract import LinkClosed, LinkMode, RoadKind
from kakeya_fleet.node.links.roads.contract import RoadFailed
from scripts.bench import link_sides
from scripts.bench.bare_ring import WHOLE, RingFailed
from scripts.bench.intervals import summary
from scripts.bench.link_peer import builders
from scripts.bench.link_promotion import promotions
from scripts.bench.link_sides import OnLink, Peer, Side
from scripts.bench.machine import command, machine, percentile, write_report

PIECE_BYTES = 4 << 20
PAYLOADS = [64, 1 << 10, 1 << 16, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
ROUND_BYTES = 32 << 20
MOST_REPEATS = 20
FAILURES = (RoadFailed, RingFailed, LinkClosed, TimeoutError)
METHOD = (
    "Two processes on this machine, over loopback, which share its cores. A transfer's seconds end "
    "when the sender knows that the other end has all of the payload; gigabytes a second are the "
    "payload over that. Medians over all transfers of all rounds."
)


@asynccontextmanager
async def linked(peer: Peer, mode: LinkMode) -> AsyncIterator[Side]:
    """A link that stays on one road."""
    roads = tuple(builders().values())
    async with link_sides.link(peer, mode, roads) as end:
        yield OnLink(end)


WAYS: Mapping[str, Callable[[Peer], AbstractAsyncContextManager[Side]]] = {
    "raw TCP": lambda _peer: link_sides.raw_tcp(),
    "bare ring": lambda _peer: link_sides.bare_ring(WHOLE),
    "bare ring, pieces": lambda _peer: link_sides.bare_ring(PIECE_BYTES),
    "shared-memory road": partial(link_sides.road, RoadKind.LOCAL),
    "ring road": partial(link_sides.road, RoadKind.RING),
    "link over gRPC": lambda peer: linked(peer, LinkMode.GRPC),
    "link over shared memory": lambda peer: linked(peer, LinkMode.LOCAL),
    "link over the ring": lambda peer: linked(peer, LinkMode.RING),
}


def repeats_of(payload_bytes: int) -> int:
    """Transfers of a payload in one turn."""
    return max(1, min(MOST_REPEATS, ROUND_BYTES // payload_bytes))


async def measure_payloads(arguments: argparse.Namespace) -> dict[str, Any]:
    """All ways and payloads; a way that fails is left out from there on, with its reason."""
    seconds: dict[tuple[str, int], list[float]] = {}
    left_out: dict[str, str] = {}
    order = random.Random(arguments.seed)
    payloads = {size: memoryview(order.randbytes(size)) for size in arguments.payloads}
    async with AsyncExitStack() as stack:
        peer = await stack.enter_async_context(await Peer.start())
        ways: dict[str, Side] = {}
        for name in arguments.ways:
            try:
                ways[name] = await stack.enter_async_context(WAYS[name](peer))
            except FAILURES as error:
                left_out[name] = str(error)
        for round_index in range(-1, arguments.rounds):
            for size, data in payloads.items():
                for name in order.sample(list(ways), len(ways)):
                    try:
                        found = await ways[name].transfers(data, repeats_of(size))
                    except FAILURES as error:
                        left_out[name] = f"{size} bytes: {error}"
                        del ways[name]
                        continue
                    # Round -1 warms every way up.
                    if round_index >= 0:
                        seconds.setdefault((name, size), []).extend(found)
            print(f"round {round_index + 1} of {arguments.rounds}", file=sys.stderr)
    return {
        "cells": [
            cell(name, size, seconds[name, size])
            for name in arguments.ways
            for size in arguments.payloads
            if (name, size) in seconds
        ],
        "left_out": left_out,
    }


def cell(way: str, payload_bytes: int, seconds: Sequence[float]) -> dict[str, Any]:
    """One way's figures of one payload."""
    return {
        "way": way,
        "payload_bytes": payload_bytes,
        "seconds": summary(seconds),
        "seconds_p95": percentile(seconds, 0.95),
        "gigabytes_per_second": payload_bytes / median(seconds) / 1e9,
    }


async def run(arguments: argparse.Namespace) -> None:
    """The parts that are asked for; the report is written after each."""
    report: dict[str, Any] = {
        "command": command(__file__),
        "machine": machine(),
        "method": METHOD,
        "piece_bytes": PIECE_BYTES,
        "rounds": arguments.rounds,
        "seed": arguments.seed,
    }
    if "payloads" in arguments.parts:
        report["payloads"] = await measure_payloads(arguments)
        write_report(arguments.out, report)
    if "promotion" in arguments.parts:
        report["promotion"] = {
            name: await promotions(name, roads, arguments)
            for name, roads in (
                ("same host", (RoadKind.LOCAL, RoadKind.RING)),
                ("ring only", (RoadKind.RING,)),
            )
        }
        write_report(arguments.out, report)
    show(report)


def show(report: dict[str, Any]) -> None:
    """The figures as a table."""
    for found in report.get("payloads", {}).get("cells", []):
        print(
            f"{found['way']:<24} {found['payload_bytes']:>9}  "
            f"{found['seconds']['median'] * 1e6:10.1f} us  "
            f"{found['gigabytes_per_second']:7.3f} GB/s"
        )
    for name, why in report.get("payloads", {}).get("left_out", {}).items():
        print(f"{name:<24} left out: {why}")
    for name, found in report.get("promotion", {}).items():
        print(
            f"promotion, {name}: {found['chosen']}, after over gRPC beside it "
            f"{found['after_over_grpc']['median']:.3f}, most {found['most_after_over_grpc']:.3f}, "
            f"met {found['goal_met']}"
        )


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parts = ("payloads", "promotion")
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--ways", nargs="+", choices=sorted(WAYS), default=list(WAYS))
    parser.add_argument("--payloads", nargs="+", type=int, default=PAYLOADS, help="bytes")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--links", type=int, default=20, help="of the part `promotion`")
    parser.add_argument("--tensors", type=int, default=30, help="after the choice, by each link")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="small payloads, one round, one link")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/links.json"))
    arguments = parser.parse_args(words)
    if arguments.quick:
        arguments.payloads, arguments.rounds = [64, 1 << 16, 1 << 20], 1
        arguments.links, arguments.tensors = 1, 4
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measures and writes JSON."""
    torch.set_num_threads(1)
    asyncio.run(run(parse(words)))


if __name__ == "__main__":
    main()
