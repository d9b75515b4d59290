"""What one session has evicted, shared by several stores by ranges of positions.

The first range begins at position 0, the others at multiples of the chunk; see
`engine.restoration.ranges` for why the bits are those of one store. The last store
takes what is deposited. Well before its range reaches the next multiple it is asked
for room for one chunk more; when it has none, another store is asked for, which the
event loop opens meanwhile. The session's parts are one: when one of them is lost all
are, and the session is made anew as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedQueries,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec
from kakeya_fleet.engine.errors import OutOfKvMemory, RestorerLost, RestorerRefused
from kakeya_fleet.fleet.placement.archive_choice import ArchiveCandidate
from kakeya_fleet.node.roles.archive.next_range import NextRange, RangePart

AHEAD = 4
"""The next range is seen to when a chunk over `AHEAD` is left of the last one."""


@dataclass(frozen=True, slots=True)
class HeldRange:
    """Positions `first` to `end`, exclusive; `where` is None in the verifier's own process."""

    where: ArchiveCandidate | None
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Sharing:
    """What the stores of one session have in common.

    `ask(next_range)` has a store opened for the range that `next_range` begins; it is
    called from the verifier's thread, and returns at once. Nobody waits for one longer
    than `arrival_seconds`. `chunk` is that of all the stores.
    """

    shape: EvictedShape
    spec: RestorerSpec
    encoder: FeatureEncoder | None
    ask: Callable[[NextRange], None]
    arrival_seconds: float
    chunk: int = CHUNK_KEYS


class SharedEvictedStore:
    """See `engine.contracts.evicted_store.EvictedStore`. Used by the verifier's thread.

    Any thread may ask for `ranges`, `length`, `stored_bytes` and `own_bytes`.
    """

    def __init__(
        self, sharing: Sharing, parts: tuple[RangePart, ...], *, last_is_complete: bool = False
    ) -> None:
        """Takes over `parts`, all but the last of which are complete."""
        self._sharing = sharing
        self._parts = parts
        self._last_is_complete = last_is_complete
        last = parts[-1].store
        # Room in the first chunk is taken as it is needed: many sessions never leave it.
        self._room_to = max(last.length, min(sharing.chunk, sharing.shape.context_length))
        self._next: NextRange | None = None
        self._begun: deque[int] = deque()
        """Parts that each `begin` asked."""
        self._lost = ""
        self._ended = False
        self.failed_nodes: frozenset[str] = frozenset()
        """Whose archive was lost, and the others with it."""
        self.gave_wrong_numbers = False
        """Whether one of them was lost for that."""

    @property
    def spec(self) -> RestorerSpec:
        """Which restorer."""
        return self._sharing.spec

    @property
    def encoder(self) -> FeatureEncoder | None:
        """Makes the context vectors that are deposited."""
        return self._sharing.encoder

    @property
    def length(self) -> int:
        """The positions from `sink` to this are deposited; 0 at first."""
        return max(part.store.length for part in self._parts)

    @property
    def stored_bytes(self) -> int:
        """Bytes that keep them, in all places."""
        return sum(part.store.stored_bytes for part in self._parts)

    @property
    def own_bytes(self) -> int:
        """Bytes of those that are in the verifier's own process."""
        return sum(part.store.stored_bytes for part in self._parts if part.where is None)

    @property
    def audit_count(self) -> int:
        """Answers of its archives that were computed again here, and were right."""
        return sum(part.audit_count for part in self._parts)

    @property
    def ranges(self) -> tuple[HeldRange, ...]:
        """Where the positions are, by rising positions; the last one's end is the length."""
        parts = self._parts
        ends = (*(part.store.origin for part in parts[1:]), self.length)
        sink = self._sharing.shape.sink
        return tuple(
            HeldRange(part.where, max(part.store.origin, sink), max(end, part.store.origin, sink))
            for part, end in zip(parts, ends, strict=True)
        )

    def deposit(self, first: int, evicted: Evicted) -> None:
        """Takes final positions; see the contract for errors."""
        self._check()
        shape = self._sharing.shape
        end = first + shape.count_of(evicted)
        if first <= end <= self._room_to:
            # As nearly always: the part checks what it is given.
            with self._losing():
                self._parts[-1].store.deposit(first, evicted)
                self._look_ahead(end)
            return
        end = first + shape.check_deposit(evicted)
        if first != max(self.length, shape.sink):
            raise ValueError(f"position {first} does not follow the {self.length} deposited")
        if end > shape.context_length:
            raise RestorerRefused(f"position {end - 1} is beyond {shape.context_length}")
        with self._losing():
            start = first
            while start < end:
                if start >= self._room_to:
                    self._extend(start)
                until = min(end, self._room_to)
                own = shape.part(evicted, start - first, until - first)
                self._parts[-1].store.deposit(start, own)
                start = until
            self._look_ahead(end)

    def begin(self, queries: EvictedQueries) -> None:
        """Asks all parts that have something these queries see, at once."""
        self._check()
        count = 0
        try:
            with self._losing():
                for part in self._parts:
                    if count and part.store.origin >= self._seen_end(queries):
                        break
                    part.store.begin(queries)
                    count += 1
        except BaseException:
            self.abandon()
            raise
        self._begun.append(count)

    def finish(self) -> PartialAttention:
        """Carries what each part found to the next."""
        self._check()
        if not self._begun:
            raise ValueError("nothing was begun")
        count = self._begun.popleft()
        with self._losing():
            found = self._parts[0].store.finish()
            for part in self._parts[1:count]:
                found = part.store.finish(found)
            return found

    def abandon(self) -> None:
        """Drops every `begin` whose result has not been asked for."""
        self._begun.clear()
        for part in self._parts:
            part.store.abandon()

    def fork(self, length: int) -> SharedEvictedStore:
        """A store of the positions below `length`, over forks of the parts that have some."""
        self._check()
        forks: list[RangePart] = []
        try:
            with self._losing(keep_full=True):
                for part in self._parts:
                    if forks and part.store.origin >= length:
                        break
                    forks.append(replace(part, store=part.store.fork(length)))
        except BaseException:
            for fork in forks:
                fork.store.release()
            raise
        last = self._parts[len(forks) - 1].store
        was_complete = len(forks) < len(self._parts) or self._last_is_complete
        return SharedEvictedStore(
            self._sharing,
            tuple(forks),
            last_is_complete=was_complete and length >= last.length,
        )

    def ask_by(self, ask: Callable[[NextRange], None]) -> None:
        """Has its next ranges opened so: a fork's are its own, and no more its origin's."""
        self._sharing = replace(self._sharing, ask=ask)

    def release(self) -> None:
        """Gives all memory back, also that of a part that was opened ahead of need."""
        self._lost = self._lost or "it was released"
        self._end()

    def _seen_end(self, queries: EvictedQueries) -> int:
        count: int = queries.queries.shape[1]
        return self._sharing.shape.evicted_end(queries.first + count - 1)

    def _look_ahead(self, length: int) -> None:
        """Sees to the next chunk before it is needed."""
        border, chunk = self._room_to, self._sharing.chunk
        near = border - length <= chunk // AHEAD
        if near and not border % chunk and border < self._sharing.shape.context_length:
            self._see_to(border)

    def _see_to(self, border: int) -> None:
        """Room in the last part for a chunk from `border` on, or the next one asked for."""
        if self._next is not None:
            return
        last = self._parts[-1]
        # What is kept here makes this process's memory grow: better elsewhere from here on.
        if last.where is not None and self._reserve(border):
            return
        self._next = NextRange(border, self._chunk_end(border))
        self._sharing.ask(self._next)

    def _extend(self, start: int) -> None:
        """Makes room for the chunk of position `start`. Raises `RestorerLost`."""
        if start % self._sharing.chunk:
            # Behind a fork, whose chunk has begun here: nowhere else can it end.
            if not self._reserve(start):
                raise RestorerLost("the session's archive has no room for the rest of a chunk")
            return
        self._see_to(start)
        if self._next is None:
            return
        part = self._came(self._next)
        if part is None:
            words = self._next.refusal
            if self._parts[-1].where is None and self._reserve(start):
                self._leave_next()
                return
            raise RestorerLost(f"no archive takes the positions from {start} on: {words}")
        self._next = None
        if not self._last_is_complete:
            self._parts[-1].store.complete()
        self._parts = (*self._parts, part)
        self._last_is_complete = False
        self._room_to = self._chunk_end(start)

    def _came(self, wanted: NextRange) -> RangePart | None:
        """What was opened for the range, once it is there; None when it cannot be had in time."""
        part = wanted.wait(self._sharing.arrival_seconds)
        if part is None:
            return None
        try:
            # It may have been opened long ago, and lost since: then another is asked for.
            part.store.reserve(wanted.end)
        except (RestorerLost, OutOfKvMemory):
            part.store.release()
        else:
            return part
        self._next = NextRange(wanted.first, wanted.end)
        self._sharing.ask(self._next)
        return self._next.wait(self._sharing.arrival_seconds)

    def _reserve(self, start: int) -> bool:
        """Whether the last part has room for the rest of the chunk of `start`, kept from now on."""
        if self._last_is_complete:
            return False
        end = self._chunk_end(start)
        try:
            self._parts[-1].store.reserve(end)
        except OutOfKvMemory:
            return False
        self._room_to = end
        return True

    def _chunk_end(self, start: int) -> int:
        chunk = self._sharing.chunk
        return min((start // chunk + 1) * chunk, self._sharing.shape.context_length)

    def _leave_next(self) -> None:
        waiting, self._next = self._next, None
        if waiting is not None:
            waiting.leave()

    @contextmanager
    def _losing(self, *, keep_full: bool = False) -> Iterator[None]:
        """Loses all parts with one. One without room is lost too, unless it may `keep_full`."""
        try:
            yield
        except RestorerLost as error:
            self._lost = str(error)
            self._end()
            raise
        except OutOfKvMemory as error:
            if keep_full:
                raise
            self._lost = str(error)
            self._end()
            raise RestorerLost(
                f"the session's memory for what it evicts is full: {error}", fault="full"
            ) from error

    def _end(self) -> None:
        if not self._ended:
            # From now on all of them are lost.
            self._ended = True
            self.failed_nodes = frozenset(
                part.where.node_id for part in self._parts if part.where and part.is_lost
            )
            faults = [part.fault for part in self._parts]
            self.gave_wrong_numbers = any(fault and fault.is_of_numbers for fault in faults)
        self._begun.clear()
        self._leave_next()
        # At once: who makes the session anew may need the same memory.
        for part in self._parts:
            part.store.release()

    def _check(self) -> None:
        if self._lost:
            raise RestorerLost(f"what the session has evicted was lost: {self._lost}")
