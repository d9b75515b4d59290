"""What TLS costs a session with an archive: round trips and deposits, in plain text beside it.

    python -m scripts.bench.archive_tls [--positions 0 8192] [--rounds 40] [--out FILE]

Two archives in processes of their own, one of a fleet without an authority and one that takes
members alone, are asked in turn, in an order shuffled anew every round, over loopback: no wire's
time hides what both ends compute. A round trip is the queries of one layer and their answer, of
one token and of a block; a deposit is 16 positions of all layers and the shortest answer behind
it, which has waited for it. Shapes are those of Qwen2.5-0.5B. Both are to give the same bits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from kakeya_fleet.engine.contracts.evicted_store import EvictedQueries
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_ways import ArchiveWays
from kakeya_fleet.node.roles.archive.opening import Opening
from kakeya_fleet.node.roles.archive.remote_store import RemoteEvictedStore
from kakeya_fleet.node.roles.settings import RestorerSettings
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.trust.trust import Trust
from scripts.bench.archive_audits import (
    DEPOSIT,
    FILL,
    GROUPS,
    HEAD_DIM,
    HEADS_OF_KEYS,
    LAYERS,
    NEVER,
    SINK,
    WINDOW,
    random_deposit,
    shape_of,
)
from scripts.bench.archive_process import ArchiveProcess
from scripts.bench.machine import command, machine
from scripts.support.trusted_pair import trusted_pair

BLOCKS = (1, 8)
SIDES = ("plain", "tls")
Seconds = dict[tuple[str, str], list[float]]


class Session:
    """A session with one archive; the same numbers for the same seed."""

    def __init__(self, store: RemoteEvictedStore, positions: int) -> None:
        self._store = store
        self._shape = shape_of(positions)
        self._rng = np.random.default_rng(0)
        for first in range(SINK, max(positions, SINK + DEPOSIT), FILL):
            count = min(FILL, max(positions, SINK + DEPOSIT) - first)
            store.deposit(first, random_deposit(self._shape, count, self._rng))
        sizes = ((HEADS_OF_KEYS * GROUPS, count, HEAD_DIM) for count in BLOCKS)
        self._queries = [self._rng.standard_normal(size, np.float32) for size in sizes]
        self._due = random_deposit(self._shape, DEPOSIT, self._rng)

    def answer(self, block: int, layer: int) -> bytes:
        """One round trip."""
        queries = self._queries[block]
        # The last positions that they may see are there.
        first = self._store.length + WINDOW - queries.shape[1]
        self._store.begin(EvictedQueries(layer, first, HEAD_DIM**-0.5, queries))
        return self._store.finish().output.tobytes()

    def deposit(self) -> bytes:
        """Deposits what is due, and waits until it is kept."""
        self._store.deposit(self._store.length, self._due)
        return self.answer(0, 0)


def turns(sessions: dict[str, Session], rounds: int) -> Seconds:
    """Seconds of each side's round trips, by what they are of."""
    order, found = random.Random(0), defaultdict[tuple[str, str], list[float]](list)
    for turn in range(-1, rounds):
        bits: dict[str, list[bytes]] = {}
        for side in order.sample(SIDES, len(SIDES)):
            session, bits[side] = sessions[side], []
            for block, size in enumerate(BLOCKS):
                for layer in range(LAYERS):
                    began = time.perf_counter()
                    bits[side].append(session.answer(block, layer))
                    if turn >= 0:
                        found[side, f"queries of {size}"].append(time.perf_counter() - began)
            began = time.perf_counter()
            bits[side].append(session.deposit())
            if turn >= 0:
                found[side, f"deposit of {DEPOSIT}"].append(time.perf_counter() - began)
        if bits["plain"] != bits["tls"]:
            raise AssertionError("TLS changed an answer")
    return found


async def measured(
    addresses: dict[str, str], pair: tuple[Trust, Trust], positions: int, rounds: int
) -> dict[str, object]:
    """One context length."""
    sessions, opened_in, ways = {}, {}, []
    for side, address in addresses.items():
        keeper, member = pair if side == "tls" else (None, None)
        settings = RestorerSettings(deadline=30.0, audit_answers=NEVER)
        way = ArchiveWays(NodeMetrics(), settings, time.monotonic, Channels(member), member)
        ways.append(way)
        opening = Opening(RestorerSpec(RestorerKind.ARCHIVE), shape_of(positions), "v")
        node_id = keeper.node_id if keeper is not None else ""
        # The first opens the channel, and loads what computes.
        (await way.open(address, opening, None, node_id)).store.release()
        began = time.perf_counter()
        opened = await way.open(address, opening, None, node_id)
        opened_in[side] = 1e3 * (time.perf_counter() - began)
        sessions[side] = Session(opened.store, positions)
    seconds = turns(sessions, rounds)
    for way in ways:
        await way.close()
    return {
        "positions": positions,
        "opening_milliseconds": {side: round(each, 2) for side, each in opened_in.items()},
        "round_trips": [_row(seconds, what) for what in dict.fromkeys(key[1] for key in seconds)],
    }


def _row(seconds: Seconds, what: str) -> dict[str, object]:
    medians = {side: statistics.median(seconds[side, what]) for side in SIDES}
    return {
        "of": what,
        "samples_each": len(seconds["plain", what]),
        **{f"{side}_microseconds": round(1e6 * medians[side], 1) for side in SIDES},
        "more_microseconds": round(1e6 * (medians["tls"] - medians["plain"]), 1),
        "ratio": round(medians["tls"] / medians["plain"], 3),
    }


def report(lengths: Sequence[int], rounds: int) -> dict[str, object]:
    """The whole measurement."""
    with TemporaryDirectory(prefix="kakeya-tls-") as folder:
        pair = trusted_pair(Path(folder))
        member = Path(folder) / "keeper"
        with (
            ArchiveProcess("2GiB", {}) as plain,
            ArchiveProcess("2GiB", {}, member=member) as sealed,
        ):
            addresses = {"plain": plain.address, "tls": sealed.address}
            rows = [
                asyncio.run(measured(addresses, pair, positions, rounds)) for positions in lengths
            ]
    return {"command": command(__file__), "machine": machine(), "lengths": rows}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--positions", type=int, nargs="+", default=[0, 8192])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = json.dumps(report(arguments.positions, arguments.rounds), indent=1)
    print(found)
    if arguments.out is not None:
        arguments.out.write_text(found + "\n")


if __name__ == "__main__":
    main()
