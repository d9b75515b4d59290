"""What one session does with its archive, whatever carries it there."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    Floats,
    PartialAttention,
)
from kakeya_fleet.engine.errors import RestorerRefused
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archives import Archive, Archives
from kakeya_fleet.node.roles.archive.position_tags import TAG_BYTES, Tags
from kakeya_fleet.node.roles.archive.tensor_bytes import partial_parts


@dataclass(frozen=True, slots=True)
class Attended:
    """The answer to queries: output, total and maximum as they are sent.

    `seconds` are those that it took.
    """

    parts: tuple[Floats, ...]
    seconds: float


class ArchiveUse:
    """An attached archive. Belongs to the thread that serves the session; `end` releases it."""

    def __init__(self, archives: Archives, archive: Archive, metrics: NodeMetrics) -> None:
        self._archives = archives
        self._archive = archive
        self._metrics = metrics
        self._seconds = 0.0
        """What the latest `begin` took."""

    @property
    def shape(self) -> EvictedShape:
        """What it was opened for."""
        return self._archive.opening.shape

    @property
    def length(self) -> int:
        """Positions below this are kept."""
        return self._archive.store.length

    def renew(self) -> None:
        """Renews the lease. Raises `ArchiveNotFound`, `Draining`."""
        self._archives.used(self._archive)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the tensors that keep them."""
        return self._archive.store.stored_bytes

    def deposit(self, first: int, evicted: Evicted, tags: Tags) -> None:
        """Keeps positions `first` onwards. Raises `RestorerRefused`, `ArchiveFull`."""
        try:
            self._archives.deposit(self._archive, first, evicted, tags)
        except ValueError as error:
            raise RestorerRefused(str(error)) from error

    @property
    def is_carried_to(self) -> bool:
        """Whether it goes on from what the archive of the range before answered."""
        return self._archive.opening.first_position > 0

    def begin(self, asked: EvictedQueries) -> None:
        """Attends to what is kept. Raises `RestorerRefused`."""
        began = time.perf_counter()
        try:
            self._archive.store.begin(asked)
        except ValueError as error:
            raise RestorerRefused(str(error)) from error
        self._seconds = time.perf_counter() - began

    def finish(self, carry: PartialAttention | None = None) -> Attended:
        """What `begin` found, on top of `carry`. Raises `RestorerRefused`."""
        store = self._archive.store
        began = time.perf_counter()
        try:
            parts = partial_parts(store.finish() if carry is None else store.finish(carry))
        except ValueError as error:
            raise RestorerRefused(str(error)) from error
        seconds = self._seconds + time.perf_counter() - began
        return Attended(parts, seconds)

    def kept_bytes_per_position(self, layer: int) -> int:
        """Bytes of one layer's keys and values of one position, and of their tag.

        Raises `RestorerRefused` where nothing is kept as it was deposited.
        """
        shape = self.shape
        if shape.width or layer not in shape.group_of:
            raise RestorerRefused(f"layer {layer} has no deposited keys and values here")
        return shape.layer_bytes_per_position(layer) + TAG_BYTES

    def kept(self, layer: int, first: int, count: int) -> tuple[EvictedKeysValues, Tags]:
        """Keys and values of one layer as they were deposited. Raises `RestorerRefused`."""
        evicted = self._archive.store.kept(layer, first, first + count)
        return evicted, self._archive.tags.of(layer, first, count)

    def reserve(self, end: int) -> None:
        """Keeps memory for the positions below `end`. Raises `RestorerRefused`, `ArchiveFull`."""
        self._archives.reserve(self._archive, end)

    def complete(self, end: int) -> None:
        """Ends the range at `end`. Raises `RestorerRefused`."""
        if end != self.length:
            raise RestorerRefused(f"a range of {self.length} positions does not end at {end}")
        try:
            self._archive.store.complete()
        except ValueError as error:
            raise RestorerRefused(str(error)) from error

    def tell(self, seconds: float) -> None:
        """Counts an answer, once it is on its way."""
        self._metrics.archive_query_seconds.observe(seconds)

    def fork(self, length: int) -> Archive:
        """An archive of the positions below `length`. Raises `RestorerRefused`, `ArchiveFull`."""
        if length > self.shape.context_length:
            raise RestorerRefused(f"a fork of {length} positions is longer than any history")
        return self._archives.fork(self._archive, length)

    def end(self) -> None:
        """Gives the memory back."""
        self._archives.release(self._archive)
