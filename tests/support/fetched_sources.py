"""A source of keys and values that reads a store of the same process, in pieces of any size."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.backends.torch_backend.fetched_attention import TorchFetchedAttention
from kakeya_fleet.engine.backends.torch_backend.group_store import TorchPool, torch_pool
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import Raw
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import RestorerLost
from kakeya_fleet.engine.restoration.fetched_store import FetchedEvictedStore, FetchedParts
from kakeya_fleet.engine.restoration.keys_values_source import KvRead

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)
Spoil = Callable[[int, Raw], tuple[int, Raw]]


@dataclass
class StoreSource:
    """Answers in the order of the requests; `spoil` may change an answer.

    `lost_after` answers it is lost. `requests` are all that were made, `most_bytes`
    the most that were requested and not taken at once.
    """

    kept: TorchEvictedStore
    sizes: Iterator[int] = field(default_factory=lambda: repeat(1 << 20))
    spoil: Spoil | None = None
    lost_after: int | None = None
    requests: list[tuple[int, int, int]] = field(default_factory=list)
    taken: int = 0
    most_bytes: int = 0
    closed: bool = False
    _waiting: deque[tuple[int, int, int]] = field(default_factory=deque)

    @property
    def stored_bytes(self) -> int:
        return 0

    def request(self, reads: Sequence[KvRead]) -> None:
        assert not self.closed
        assert reads
        asked = [(read.layer, read.first, read.end) for read in reads]
        self.requests += asked
        self._waiting += asked
        under_way = sum(self.kept.read(*waiting).nbytes for waiting in self._waiting)
        self.most_bytes = max(self.most_bytes, under_way)

    def next_chunk(self) -> tuple[int, Raw]:
        if self.lost_after is not None and self.taken >= self.lost_after:
            raise RestorerLost("the road ended")
        # One that waits for what was never requested waits for ever.
        layer, first, end = self._waiting.popleft()
        stop = min(end, first + next(self.sizes))
        if stop < end:
            self._waiting.appendleft((layer, stop, end))
        self.taken += 1
        numbers = self.kept.read(layer, first, stop)
        return self.spoil(first, numbers) if self.spoil is not None else (first, numbers)

    def close(self) -> None:
        self.closed = True


@dataclass
class FetchedStores:
    """Makes fetched stores over torch stores of one pool; `sources` and `attentions` are theirs."""

    pool: TorchPool = field(default_factory=torch_pool)
    sizes: Callable[[], Iterator[int]] = field(default=lambda: repeat(1 << 20))
    sources: list[StoreSource] = field(default_factory=list)
    attentions: list[TorchFetchedAttention] = field(default_factory=list)

    def make(self, shape: EvictedShape) -> FetchedEvictedStore:
        kept = TorchEvictedStore(shape, ARCHIVE, self.pool)
        return FetchedEvictedStore(kept, shape, FetchedParts(self._open, self._new_attention))

    def _open(self, kept: TorchEvictedStore) -> StoreSource:
        self.sources.append(StoreSource(kept, self.sizes()))
        return self.sources[-1]

    def _new_attention(self, shape: EvictedShape) -> TorchFetchedAttention:
        self.attentions.append(TorchFetchedAttention(shape))
        return self.attentions[-1]
