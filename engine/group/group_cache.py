"""A cache of which every rank holds its heads' part, and the leader a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.positions import resident_count
from kakeya_fleet.engine.group.fields import Header, integer, integers
from kakeya_fleet.engine.memory.slab_pool import Slab

if TYPE_CHECKING:
    from kakeya_fleet.engine.group.mirror import Mirror


class GroupCache:
    """See `engine.contracts.cache.KvCache`. Bytes are those of rank 0's part."""

    def __init__(
        self, mirror: Mirror, verifier: int, number: int, spec: CacheSpec, start: int = 0
    ) -> None:
        """The cache `number` of the ranks' `verifier`, whose first `start` positions are final."""
        self._mirror = mirror
        self._verifier = verifier
        self._number = number
        self._spec = spec
        self._last_start = start
        self._length = start
        self._memory_bytes = 0
        self._freed_bytes = 0
        self._widest = 1
        self._forkable_from = 0
        self._reach = 0
        self._growth_bytes = 0
        self._slab_numbers: tuple[int, ...] = ()
        self._released = False

    @property
    def number(self) -> int:
        """Its number at the ranks."""
        return self._number

    @property
    def verifier(self) -> int:
        """The number of its verifier at the ranks."""
        return self._verifier

    @property
    def mirror(self) -> Mirror:
        """Of which group it is."""
        return self._mirror

    @property
    def spec(self) -> CacheSpec:
        """What was allocated."""
        return self._spec

    @property
    def length(self) -> int:
        """Positions written, provisional ones included: the next one's index."""
        return self._length

    @property
    def resident(self) -> int:
        """Positions below `length` that the next query can attend to."""
        if self._spec.kind is CacheKind.CONTIGUOUS:
            return self._length
        return resident_count(self._length, self._spec.sink, self._spec.window)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the tensors of rank 0's part; shared ones count too."""
        return self._memory_bytes

    @property
    def slabs(self) -> Sequence[Slab[None]]:
        """What it holds of the pools."""
        return () if self._released else self._mirror.slabs(self._slab_numbers)

    @property
    def freed_bytes(self) -> int:
        """Bytes that rank 0's pool gets back when this cache is released now."""
        return 0 if self._released else self._freed_bytes

    @property
    def evicted(self) -> None:
        """A group restores nothing."""
        return None

    @property
    def widest(self) -> int:
        """The most tokens of one forward into this cache."""
        return self._widest

    @property
    def forkable_from(self) -> int:
        """The shortest prefix whose keys and values are all still there."""
        return self._forkable_from

    @property
    def reach(self) -> int:
        """The positions below this have their memory."""
        return self._reach

    def growth_bytes(self, count: int) -> int:
        """Bytes that the next `count` positions take from each rank's pool, of one segment at most.

        A forward has fewer tokens than a segment has slots: it never takes more.
        """
        return self._growth_bytes if self._length + count > self._reach else 0

    def truncate(self, length: int) -> None:
        """Keeps the first `length` positions; `ValueError` outside the last forward's range.

        The ranks do it before their next command. Raises `GroupLost`.
        """
        if not self._last_start <= length <= self._length:
            raise ValueError(
                f"cannot keep {length} positions: only {self._last_start} to {self._length}"
            )
        self._mirror.check()
        if length < self._length:
            self._length = length
            self._mirror.truncate(self._number, length)

    def fork(self, length: int) -> GroupCache:
        """A cache of the first `length` positions that shares what neither will change."""
        return self._mirror.fork(self, length)

    def fork_bytes(self, length: int) -> int:
        """Bytes that `fork(length)` takes or reserves from each rank's pool."""
        return self._mirror.fork_bytes(self, length)

    def fill(self, count: int, seed: int) -> None:
        """Makes an empty cache one of `count` positions with random keys and values."""
        self._mirror.fill(self, count, seed)

    def release(self) -> None:
        """Gives the memory back; the ranks do it before their next command. Any thread may call."""
        if not self._released:
            self._released = True
            self._mirror.release(self._number, self._slab_numbers)

    def started_at(self, start: int) -> None:
        """Positions below `start` are final from now on."""
        self._last_start = start

    def tell(self, state: Header) -> None:
        """Takes what the ranks said of it. Raises `MalformedMessage`, `GroupLost`."""
        length = integer(state, "length")
        self._length = length
        self._memory_bytes = integer(state, "memory_bytes")
        self._freed_bytes = integer(state, "freed_bytes")
        self._widest = integer(state, "widest")
        self._forkable_from = integer(state, "forkable_from")
        self._reach = integer(state, "reach")
        self._growth_bytes = integer(state, "growth_bytes")
        if "slabs" in state:
            self._slab_numbers = tuple(integers(state, "slabs"))

    def check_alive(self) -> None:
        """Raises `ValueError` once released."""
        if self._released:
            raise ValueError("a released cache was used")
