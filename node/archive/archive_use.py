"""What one session does with its archive, whatever carries it there."""

from __future__ import annotations

import time
from dataclasses import dataclass

from engine.errors import RestorerRefused
from engine.restoration.contract import Evicted, EvictedQueries, Floats
from engine.restoration.shape import EvictedShape
from node.archive.archives import Archive, Archives
from node.archive.tensor_bytes import partial_parts
from node.metrics import NodeMetrics


@dataclass(frozen=True, slots=True)
class Attended:
    """The answer to queries: output, total and maximum as they are sent.

    `seconds` are those that it took, `stored_bytes` what is kept by then.
    """

    parts: tuple[Floats, ...]
    seconds: float
    stored_bytes: int


class ArchiveUse:
    """An attached archive. Belongs to the thread that serves the session; `end` releases it."""

    def __init__(self, archives: Archives, archive: Archive, metrics: NodeMetrics) -> None:
        self._archives = archives
        self._archive = archive
        self._metrics = metrics

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

    def deposit(self, first: int, evicted: Evicted) -> None:
        """Keeps positions `first` onwards. Raises `RestorerRefused`, `ArchiveFull`."""
        try:
            self._archives.deposit(self._archive, first, evicted)
        except ValueError as error:
            raise RestorerRefused(str(error)) from error

    def attend(self, asked: EvictedQueries) -> Attended:
        """Attends to what is kept. Raises `RestorerRefused`."""
        store = self._archive.store
        began = time.perf_counter()
        try:
            store.begin(asked)
        except ValueError as error:
            raise RestorerRefused(str(error)) from error
        parts = partial_parts(store.finish())
        return Attended(parts, time.perf_counter() - began, store.stored_bytes)

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
