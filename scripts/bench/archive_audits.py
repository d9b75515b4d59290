"""What the checks of archives cost: tags, and spot checks at several rates.

    python -m scripts.bench.archive_audits [--positions 8192 32768] [--out FILE]

Sessions with one archive in another process, on random keys and values of a model's shape.
Their layers ask in turn; a step is the answers of all layers and its share of a deposit of 16
positions. Counted is the processor time of the verifier's thread, which other work on the
machine does not lengthen. The last rate audits nothing within the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedKeysValues, EvictedQueries
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, LayerGroup
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_ways import ArchiveWays
from kakeya_fleet.node.roles.archive.opening import Opening
from kakeya_fleet.node.roles.archive.position_tags import PositionTagger
from kakeya_fleet.node.roles.archive.remote_store import RemoteEvictedStore
from kakeya_fleet.node.roles.settings import RestorerSettings
from scripts.bench.archive_process import ArchiveProcess
from scripts.bench.machine import machine

LAYERS, HEADS_OF_KEYS, GROUPS, HEAD_DIM = 24, 2, 7, 64
"""Those of Qwen2.5-0.5B."""
SINK, WINDOW, DEPOSIT = 4, 512, 16
NEVER = 1 << 40
RATES = (64, 16, NEVER)
FILL = 1024


def shape_of(positions: int) -> EvictedShape:
    """What the sessions evict."""
    layers = LayerGroup(tuple(range(LAYERS)), AttentionLayer(HEADS_OF_KEYS, GROUPS, HEAD_DIM))
    return EvictedShape((layers,), "float32", SINK, WINDOW, 2 * positions + 4 * WINDOW)


def random_deposit(shape: EvictedShape, count: int, rng: np.random.Generator) -> EvictedKeysValues:
    """Keys and values of so many positions."""
    return EvictedKeysValues(
        tuple(rng.standard_normal(sizes, np.float32) for _, sizes in shape.arrays(count))
    )


class Session:
    """A session that decodes; `step` takes one token's answers."""

    def __init__(self, store: RemoteEvictedStore, shape: EvictedShape, positions: int) -> None:
        self.store = store
        self.step_seconds: list[float] = []
        self._shape = shape
        self._rng = np.random.default_rng(0)
        for first in range(SINK, positions, FILL):
            count = min(FILL, positions - first)
            store.deposit(first, random_deposit(shape, count, self._rng))
        self._due = random_deposit(shape, DEPOSIT, self._rng)
        size = (HEADS_OF_KEYS * GROUPS, 1, HEAD_DIM)
        self._queries = self._rng.standard_normal(size, np.float32)
        self._steps = 0

    def step(self) -> None:
        """Asks for all layers, and counts it with the deposit that is due."""
        began = time.thread_time()
        if not self._steps % DEPOSIT:
            self.store.deposit(self.store.length, self._due)
        self._steps += 1
        first = self.store.length + WINDOW - 1
        for layer in range(LAYERS):
            asked = EvictedQueries(layer, first, HEAD_DIM**-0.5, self._queries)
            self.store.begin(asked)
            self.store.finish()
        self.step_seconds.append(time.thread_time() - began)


async def measured(address: str, positions: int, blocks: int, steps: int) -> dict[str, object]:
    """Mean processor time of a step at each rate; the audits that passed."""
    shape = shape_of(positions)
    ways, sessions, metrics = [], {}, NodeMetrics()
    for rate in RATES:
        settings = RestorerSettings(deadline=10.0, audit_answers=rate)
        ways.append(ArchiveWays(metrics, settings, time.monotonic))
        opening = Opening(RestorerSpec(RestorerKind.ARCHIVE), shape, "v")
        opened = await ways[-1].open(address, opening, None)
        sessions[rate] = Session(opened.store, shape, positions)
    for _ in range(blocks):
        for session in sessions.values():
            for _ in range(steps):
                session.step()
    means = {rate: 1e3 * float(np.mean(each.step_seconds)) for rate, each in sessions.items()}
    audits = {rate: each.store.audit_count for rate, each in sessions.items()}
    for each in sessions.values():
        each.store.release()
    for way in ways:
        await way.close()
    never = means[NEVER]
    return {
        "positions": positions,
        "step_cpu_milliseconds_without": round(never, 3),
        "rates": [
            {
                "answers_per_read": rate,
                "step_cpu_milliseconds": round(means[rate], 3),
                "more_cpu_milliseconds_a_step": round(means[rate] - never, 3),
                "audits_passed": audits[rate],
                "steps": blocks * steps,
            }
            for rate in RATES[:-1]
        ],
    }


def tag_milliseconds() -> float:
    """Of the tags of a deposit, a position: the median of 50."""
    shape, tagger = shape_of(1024), PositionTagger()
    evicted = random_deposit(shape, DEPOSIT, np.random.default_rng(0))
    seconds = []
    for _ in range(50):
        began = time.thread_time()
        tagger.tags(shape, SINK, evicted)
        seconds.append(time.thread_time() - began)
    return round(1e3 * float(np.median(seconds)) / DEPOSIT, 4)


def report(lengths: Sequence[int], blocks: int, steps: int) -> dict[str, object]:
    """The whole measurement."""
    with ArchiveProcess("4GiB", {}) as archive:
        rows = [
            asyncio.run(measured(archive.address, positions, blocks, steps))
            for positions in lengths
        ]
    return {"machine": machine(), "tag_milliseconds": tag_milliseconds(), "lengths": rows}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--positions", type=int, nargs="+", default=[8192, 32768])
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = json.dumps(report(arguments.positions, arguments.blocks, arguments.steps), indent=1)
    print(found)
    if arguments.out is not None:
        arguments.out.write_text(found + "\n")


if __name__ == "__main__":
    main()
