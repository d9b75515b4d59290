"""An evicted store that keeps elsewhere and attends here.

Deposits go to a store of another process; keys and values come back chunk by
chunk, the next ones while these are attended to. What is in memory here is a
chunk of one layer, and `chunk_reads.CHUNKS_UNDER_WAY` on their way, whatever the
length of the history. The bits are those of a store that attends where it keeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedQueries,
    EvictedStore,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec
from kakeya_fleet.engine.errors import RestorerLost, RestorerRefused
from kakeya_fleet.engine.restoration.chunk_reads import ChunkReads, LayerRead
from kakeya_fleet.engine.restoration.keys_values_source import (
    KeysValuesSource,
    NewAttention,
    OpenSource,
)


@dataclass(frozen=True, slots=True)
class FetchedParts:
    """What a store reads with and computes with, and so does each of its forks."""

    open_source: OpenSource
    new_attention: NewAttention


class FetchedEvictedStore:
    """What one session has evicted; see `engine.contracts.evicted_store.EvictedStore`.

    Once its source is lost it stays lost.
    """

    def __init__(self, kept: EvictedStore, shape: EvictedShape, parts: FetchedParts) -> None:
        """Takes over `kept`, which is released when this raises.

        Raises `RestorerLost`, and what `parts.new_attention` raises.
        """
        self._kept = kept
        self._shape = shape
        self._parts = parts
        self._lost = ""
        self._begun: deque[tuple[EvictedQueries, LayerRead | None]] = deque()
        try:
            self._attention = parts.new_attention(shape)
            self._source = parts.open_source(kept)
        except BaseException:
            kept.release()
            raise
        self._reads = ChunkReads(shape, self._source)

    @property
    def spec(self) -> RestorerSpec:
        """Which restorer."""
        return self._kept.spec

    @property
    def encoder(self) -> FeatureEncoder | None:
        """Makes the context vectors that are deposited."""
        return self._kept.encoder

    @property
    def source(self) -> KeysValuesSource:
        """What it reads by."""
        return self._source

    @property
    def length(self) -> int:
        """The positions from `sink` to this are deposited; 0 at first."""
        return self._kept.length

    @property
    def stored_bytes(self) -> int:
        """Bytes that keep them, where they lie, as they were told last."""
        return self._source.stored_bytes or self._kept.stored_bytes

    def deposit(self, first: int, evicted: Evicted) -> None:
        """Hands final positions on; see the contract for errors."""
        self._check()
        with self._losing():
            self._kept.deposit(first, evicted)

    def begin(self, queries: EvictedQueries) -> None:
        """Requests what these queries see, and what the next layers' will."""
        self._check()
        self._shape.check_queries(queries)
        self._shape.check_deposited(queries, self._kept.length)
        end = queries.first + queries.queries.shape[1] - self._shape.window
        read = None
        if end > self._shape.sink:
            with self._reading():
                read = self._reads.begin(queries.layer, end)
        self._begun.append((queries, read))

    def finish(self) -> PartialAttention:
        """Attends to what comes for the oldest `begin` that has not been asked for."""
        self._check()
        if not self._begun:
            raise ValueError("nothing was begun")
        asked, read = self._begun.popleft()
        fold = self._attention.start(asked)
        while read is not None and not read.complete:
            with self._reading():
                first, numbers = self._reads.take(read)
                fold.put(first, numbers)
                # What is put needs no room among what is on its way.
                self._reads.request()
            if read.at_chunk_end:
                fold.fold()
        found = fold.partial()
        if asked.layer == self._last_layer and not self._begun:
            self._attention.rest()
        return found

    def abandon(self) -> None:
        """Drops every `begin` whose result has not been asked for."""
        self._begun.clear()
        self._reads.abandon()
        self._attention.rest()

    def fork(self, length: int) -> FetchedEvictedStore:
        """A store of the positions below `length`, read over a source of its own."""
        self._check()
        with self._losing():
            kept = self._kept.fork(length)
        return FetchedEvictedStore(kept, self._shape, self._parts)

    def release(self) -> None:
        """Ends the source, and gives the memory back."""
        self._lost = self._lost or "it was released"
        self.abandon()
        self._source.close()
        self._kept.release()

    @property
    def _last_layer(self) -> int:
        return max(self._shape.group_of)

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Ends the store for ever when what is kept is lost."""
        try:
            yield
        except RestorerLost as error:
            self._lose(str(error))
            raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """The same, also when something else comes than was asked for."""
        with self._losing():
            try:
                yield
            except RestorerRefused as error:
                raise RestorerLost(f"what was evicted came back wrong: {error}") from error

    def _lose(self, words: str) -> None:
        self._lost = words
        self._begun.clear()
        self._attention.rest()
        self._source.close()
        # At once: who makes the session anew may need the same memory.
        self._kept.release()

    def _check(self) -> None:
        if self._lost:
            raise RestorerLost(f"what the session has evicted is out of reach: {self._lost}")
