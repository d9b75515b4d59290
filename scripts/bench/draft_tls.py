"""What mutual TLS costs a draft's round trip, in plain text beside it.

    python -m scripts.bench.draft_tls [--rounds 4000] [--out benchmarks/draft_tls.json]

Two agents serve the n-gram proposer, one in a fleet without an authority and one that takes members
alone. A draft stream is open to each, over loopback, so that no wire's time hides what both ends
compute; they are asked for a block in turn, in an order shuffled anew every round. A round trip is
from the proposal to its block. Also told is how long it takes to open a connection and a stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc.aio

from kakeya.v1 import proposer_pb2, proposer_pb2_grpc
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.trust.trust import Trust
from scripts.bench.machine import command, machine, write_report
from scripts.support.agent_process import LocalFleet
from scripts.support.trusted_pair import trusted_pair

SIDES = ("plain", "tls")
PREFIX = [300 + index % 40 for index in range(200)]
BLOCK = 8


class Drafting:
    """One open draft stream."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._asked: asyncio.Queue[proposer_pb2.DraftRequest] = asyncio.Queue()
        self._call = proposer_pb2_grpc.ProposerServiceStub(channel).Draft(self._requests())
        self._length = len(PREFIX)
        self._block_id = 0

    async def open(self) -> None:
        """Returns once the first block is there."""
        opening = proposer_pb2.DraftOpen(
            model_id="ngram", prefix_token_ids=PREFIX, vocabulary_size=1000
        )
        await self._asked.put(proposer_pb2.DraftRequest(open=opening))
        await self.round_trip()

    async def round_trip(self) -> float:
        """Seconds from a proposal, with one token committed, to its block."""
        self._block_id += 1
        self._length += 1
        proposal = proposer_pb2.DraftProposal(
            block_id=self._block_id,
            committed_token_ids=[300 + self._length % 40],
            base_length=self._length,
            block_size=BLOCK,
        )
        began = time.perf_counter()
        await self._asked.put(proposer_pb2.DraftRequest(proposal=proposal))
        answer = await self._call.read()
        seconds = time.perf_counter() - began
        if not isinstance(answer, proposer_pb2.DraftResponse) or answer.block_id != self._block_id:
            raise AssertionError(f"no block for proposal {self._block_id}: {answer}")
        return seconds

    def end(self) -> None:
        """Ends the stream."""
        self._call.cancel()

    async def _requests(self) -> AsyncIterator[proposer_pb2.DraftRequest]:
        while True:
            yield await self._asked.get()


async def measure(
    opened: dict[str, Callable[[], grpc.aio.Channel]], rounds: int, openings: int, seed: int
) -> dict[str, dict[str, list[float]]]:
    """Seconds of round trips and of openings, by side."""
    order = random.Random(seed)
    found: dict[str, dict[str, list[float]]] = {
        side: {"opening": [], "draft": []} for side in SIDES
    }
    for _ in range(openings):
        for side in order.sample(SIDES, len(SIDES)):
            began = time.perf_counter()
            async with opened[side]() as channel:
                drafting = Drafting(channel)
                await drafting.open()
                found[side]["opening"].append(time.perf_counter() - began)
                drafting.end()
    channels = {side: opened[side]() for side in SIDES}
    streams = {side: Drafting(channels[side]) for side in SIDES}
    for drafting in streams.values():
        await drafting.open()
    for number in range(rounds):
        for side in order.sample(SIDES, len(SIDES)):
            seconds = await streams[side].round_trip()
            # The first ones warm both ends.
            if number >= rounds // 10:
                found[side]["draft"].append(seconds)
    for side in SIDES:
        streams[side].end()
        await channels[side].close()
    return found


def told(found: dict[str, dict[str, list[float]]]) -> dict[str, object]:
    """Medians and ratios."""

    def of(kind: str) -> dict[str, float]:
        plain, tls = (sorted(found[side][kind]) for side in SIDES)
        return {
            "count": len(plain),
            "plain_us": 1e6 * statistics.median(plain),
            "tls_us": 1e6 * statistics.median(tls),
            "ratio": statistics.median(tls) / statistics.median(plain),
            "plain_p99_us": 1e6 * plain[99 * len(plain) // 100],
            "tls_p99_us": 1e6 * tls[99 * len(tls) // 100],
        }

    return {"draft": of("draft"), "opening": of("opening")}


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4000)
    parser.add_argument("--openings", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/draft_tls.json"))
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Starts both agents, measures, writes the report."""
    asked = parse(words)
    with TemporaryDirectory() as name:
        folder = Path(name)
        _, caller = trusted_pair(folder)
        addresses: dict[str, str] = {}
        sides: dict[str, Trust | None] = {"plain": None, "tls": caller}

        def opener(side: str) -> Callable[[], grpc.aio.Channel]:
            return lambda: Channels(sides[side]).open(addresses[side])

        with LocalFleet("plain") as plain, LocalFleet("bench", directory=folder) as members:
            for side, fleet in (("plain", plain), ("tls", members)):
                addresses[side] = fleet.start("keeper", serve=("proposer=ngram",)).address
            opened = {side: opener(side) for side in SIDES}
            found = asyncio.run(measure(opened, asked.rounds, asked.openings, asked.seed))
    report = {"command": command(__file__), "machine": machine(), **told(found)}
    write_report(asked.out, report)
    print(json.dumps(told(found), indent=2))


if __name__ == "__main__":
    main()
