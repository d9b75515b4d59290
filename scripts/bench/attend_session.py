"""One session's side of `scripts.bench.attend`: what its evicted positions cost a step.

    python -m scripts.bench.attend_session --core 1

Reads orders as lines of JSON: `Shape` opens and fills a store, `Step` attends to it
in every layer, one after the other. Answers each with a line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, cast

import numpy as np
import torch

from kakeya_fleet.engine.backends import load_map_encoder
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    EvictedStore,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, LayerGroup
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.models.model_folder import SHIPPED
from kakeya_fleet.engine.restoration.learned_map import read_map
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_ways import ArchiveWays
from kakeya_fleet.node.roles.archive.opening import Opening
from kakeya_fleet.node.roles.settings import RestorerSettings
from scripts.bench.attend_host import COUNT, PIECE_BYTES
from scripts.bench.counted_store import random_numbers

SINK, WINDOW = 4, 64
DTYPE = "float32"
"""A processor without bfloat16 products takes seconds for what it does at once in this."""
DEADLINE_SECONDS = 300.0
BLOCK = 1024
DRAFTER = "tiny-dflash"


class Way(StrEnum):
    """Where queries attend to what an archive keeps."""

    ARCHIVE = "at the archive"
    VERIFIER = "at the verifier, over plain TCP"


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's layers, and the positions behind which steps attend."""

    restorer: str
    layers: int
    kv_heads: int
    groups: int
    head_dim: int
    context: int

    @property
    def layer(self) -> AttentionLayer:
        """One of its layers."""
        return AttentionLayer(self.kv_heads, self.groups, self.head_dim)

    def evicted(self, layers: int, width: int = 0) -> EvictedShape:
        """What a store of so many of its layers keeps."""
        group = LayerGroup(tuple(range(layers)), self.layer)
        return EvictedShape((group,), DTYPE, SINK, WINDOW, 2 * self.context, width)


@dataclass(frozen=True, slots=True)
class Ports:
    """Where `scripts.bench.attend_host` serves."""

    host: str
    archive: int
    plain: int


class Session:
    """A store in an archive, and the two ways to attend to it."""

    def __init__(self, shape: Shape, ports: Ports) -> None:
        self._shape = shape
        self._asked: dict[tuple[int, int], EvictedQueries] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        kept, evicted = self._opened(ports)
        fill(kept, evicted, shape.context)
        own = shape.evicted(1)
        local = TorchEvictedStore(own, RestorerSpec(RestorerKind.ARCHIVE), kv_pool())
        fill(local, own, shape.context)
        plain = PlainReads(
            ports, evicted.layer_bytes_per_position(0) * (shape.context - SINK - WINDOW)
        )
        self._steps: dict[Way, Callable[[int], PartialAttention]] = {
            Way.ARCHIVE: lambda rows: self._attended(kept, rows),
            Way.VERIFIER: lambda rows: self._read_plainly(plain, local, rows),
        }

    def step(self, way: Way, rows: int) -> float:
        """Seconds that one block of `rows` queries takes in all layers."""
        for layer in range(self._shape.layers):
            self._queries(layer, rows)
        began = time.perf_counter()
        self._steps[way](rows)
        return time.perf_counter() - began

    def _attended(self, store: EvictedStore, rows: int) -> PartialAttention:
        for layer in range(self._shape.layers):
            store.begin(self._queries(layer, rows))
            found = store.finish()
        return found

    def _read_plainly(self, plain: PlainReads, local: EvictedStore, rows: int) -> PartialAttention:
        arrived = plain.request(self._shape.layers)
        for _ in range(self._shape.layers):
            arrived.acquire()
            local.begin(self._queries(0, rows))
            found = local.finish()
        return found

    def _queries(self, layer: int, rows: int) -> EvictedQueries:
        if (layer, rows) not in self._asked:
            of, rng = self._shape.layer, np.random.default_rng(layer)
            numbers = rng.standard_normal((of.kv_heads * of.groups, rows, of.head_dim), np.float32)
            self._asked[layer, rows] = EvictedQueries(
                layer, self._shape.context, of.head_dim**-0.5, numbers
            )
        return self._asked[layer, rows]

    def _opened(self, ports: Ports) -> tuple[EvictedStore, EvictedShape]:
        shape, spec, digest = self._shape, RestorerSpec(RestorerKind.ARCHIVE), "digest"
        encoder: FeatureEncoder | None = None
        if shape.restorer == RestorerKind.PROJECTION:
            found = read_map(DRAFTER, SHIPPED[DRAFTER])
            spec, digest, encoder = found.spec, found.verifier_digest, load_map_encoder(found)
        evicted = shape.evicted(shape.layers, spec.width)
        ways = self._on_loop(
            lambda: ArchiveWays(
                NodeMetrics(), RestorerSettings(deadline=DEADLINE_SECONDS), time.monotonic
            )
        )
        opening = Opening(spec, evicted, digest, expected_positions=shape.context)
        address = f"{ports.host}:{ports.archive}"
        opened = asyncio.run_coroutine_threadsafe(ways.open(address, opening, encoder), self._loop)
        return opened.result().store, evicted

    def _on_loop(self, call: Callable[[], Any]) -> Any:
        async def called() -> Any:
            return call()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result()


class PlainReads:
    """Reads layers of so many bytes as fast as one TCP connection brings them."""

    def __init__(self, ports: Ports, layer_bytes: int) -> None:
        self._socket = socket.create_connection((ports.host, ports.plain))
        self._layer_bytes = layer_bytes
        self._into = memoryview(bytearray(PIECE_BYTES))

    def request(self, layers: int) -> threading.Semaphore:
        """Asks for all of them at once; it is released as often as one has arrived."""
        arrived = threading.Semaphore(0)
        self._socket.sendall(COUNT.pack(layers * self._layer_bytes))
        threading.Thread(target=self._take, args=(layers, arrived), daemon=True).start()
        return arrived

    def _take(self, layers: int, arrived: threading.Semaphore) -> None:
        for _ in range(layers):
            left = self._layer_bytes
            while left:
                left -= self._socket.recv_into(self._into[: min(left, PIECE_BYTES)])
            arrived.release()


def fill(store: EvictedStore, shape: EvictedShape, end: int) -> None:
    """Deposits random numbers for all positions from the sink to `end`."""
    rng = np.random.default_rng(0)
    first = SINK
    while first < end:
        count = min(BLOCK, end - first)
        numbers = [random_numbers(rng, dtype, sizes) for dtype, sizes in shape.arrays(count)]
        evicted = numbers[0] if shape.width else EvictedKeysValues(tuple(numbers))
        store.deposit(first, cast(Evicted, evicted))
        first += count


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--core", type=int, required=True)
    os.sched_setaffinity(0, {parser.parse_args().core})
    torch.set_num_threads(1)
    session: Session | None = None
    for line in sys.stdin:
        order = json.loads(line)
        if session is None:
            session = Session(Shape(**order["shape"]), Ports(**order["ports"]))
            print(json.dumps(asdict(Shape(**order["shape"]))), flush=True)
        else:
            print(json.dumps(session.step(Way(order["way"]), order["rows"])), flush=True)


if __name__ == "__main__":
    main()
