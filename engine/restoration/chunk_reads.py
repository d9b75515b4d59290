"""Which chunks of which layers are on their way, ahead of the layers that ask for them.

A forward asks for its layers in ascending order, and its queries see the same
positions in each. So the layers behind the one that was asked for are requested
too, as far as a budget of bytes allows. What was requested and is not wanted any
more cannot be called back: it is taken and dropped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.evicted_shape import FORMATS, EvictedShape, is_finite
from kakeya_fleet.engine.contracts.evicted_store import Raw
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.errors import RestorerRefused
from kakeya_fleet.engine.restoration.keys_values_source import KeysValuesSource, KvRead

CHUNKS_UNDER_WAY = 2
"""Of the largest layer, at most: one that is on its way while another is attended to."""


@dataclass(slots=True, eq=False)
class LayerRead:
    """Positions up to `end` of a layer: those below `asked` are requested, below `taken` here."""

    layer: int
    end: int
    asked: int
    taken: int

    @property
    def complete(self) -> bool:
        """Whether all of it has arrived."""
        return self.taken == self.end

    @property
    def at_chunk_end(self) -> bool:
        """Whether what has arrived ends with a chunk."""
        return self.complete or not self.taken % CHUNK_KEYS


class ChunkReads:
    """The reads of one store, in the order of their requests."""

    def __init__(self, shape: EvictedShape, source: KeysValuesSource) -> None:
        self._shape = shape
        self._source = source
        self._layers = sorted(shape.group_of)
        self._position_bytes = {
            layer: shape.layer_bytes_per_position(layer) for layer in self._layers
        }
        self.budget_bytes = CHUNKS_UNDER_WAY * CHUNK_KEYS * max(self._position_bytes.values())
        self._reads: deque[LayerRead] = deque()
        """Wanted ones, dropped ones, and behind them those that are ahead of their layers."""
        self._ahead: deque[LayerRead] = deque()
        self._following: list[int] = []
        """Layers that are read ahead next, the first one last."""
        self._under_way_bytes = 0

    @property
    def under_way_bytes(self) -> int:
        """Bytes that were requested and not taken yet."""
        return self._under_way_bytes

    def begin(self, layer: int, end: int) -> LayerRead:
        """The read of the positions from sink to `end` > sink, requested as far as may be."""
        if self._ahead and (self._ahead[0].layer, self._ahead[0].end) == (layer, end):
            read = self._ahead.popleft()
        else:
            self._drop(self._ahead)
            self._ahead.clear()
            read = self._new(layer, end)
            self._following = [later for later in reversed(self._layers) if later > layer]
        self.request()
        return read

    def request(self) -> None:
        """Sends what the budget allows, wanted reads first. Raises `RestorerLost`."""
        asked: list[KvRead] = []
        while (read := self._next()) is not None:
            end = min(read.end, (read.asked // CHUNK_KEYS + 1) * CHUNK_KEYS)
            size = (end - read.asked) * self._position_bytes[read.layer]
            if self._under_way_bytes and self._under_way_bytes + size > self.budget_bytes:
                break
            asked.append(KvRead(read.layer, read.asked, end))
            read.asked = end
            self._under_way_bytes += size
        if asked:
            self._source.request(asked)

    def take(self, read: LayerRead) -> tuple[int, Raw]:
        """The next piece of `read`, the oldest that is wanted and not complete.

        Raises `RestorerLost`, and `RestorerRefused` for what was not asked for.
        """
        while True:
            self.request()
            head = self._reads[0]
            first, numbers = self._source.next_chunk()
            count = self._checked(head, first, numbers)
            head.taken += count
            self._under_way_bytes -= count * self._position_bytes[head.layer]
            if head.complete:
                self._reads.popleft()
            if head is read:
                return first, numbers

    def abandon(self) -> None:
        """Wants nothing any more."""
        self._drop(self._reads)
        self._ahead.clear()
        self._following.clear()

    def _next(self) -> LayerRead | None:
        """The read of which more is to be requested; None when nothing is."""
        read = next((read for read in self._reads if read.asked < read.end), None)
        if read is None and self._following and self._reads:
            read = self._new(self._following.pop(), self._reads[-1].end)
            self._ahead.append(read)
        return read

    def _new(self, layer: int, end: int) -> LayerRead:
        read = LayerRead(layer, end, self._shape.sink, self._shape.sink)
        self._reads.append(read)
        return read

    def _drop(self, unwanted: deque[LayerRead]) -> None:
        """Leaves of some reads what is on its way."""
        for read in unwanted:
            read.end = read.asked
        self._reads = deque(read for read in self._reads if not read.complete)

    def _checked(self, read: LayerRead, first: int, numbers: Raw) -> int:
        """Positions of a piece of `read`. Raises `RestorerRefused`."""
        of = self._shape.group_of[read.layer].shape
        count = numbers.shape[2] if numbers.ndim == 4 else 0
        expected = (2, of.kv_heads, count, of.head_dim)
        chunk_end = (read.taken // CHUNK_KEYS + 1) * CHUNK_KEYS
        if (
            not 0 < count <= min(read.asked, chunk_end) - read.taken
            or first != read.taken
            or numbers.shape != expected
            or numbers.dtype != FORMATS[self._shape.dtype]
        ):
            raise RestorerRefused(
                f"{numbers.dtype.name} {list(numbers.shape)[:8]} came for position {first} where"
                f" {self._shape.dtype} [2, {of.kv_heads}, n, {of.head_dim}] of layer {read.layer}"
                f" from {read.taken} to {read.asked} were due"
            )
        if not is_finite(numbers):
            raise RestorerRefused("keys or values that came back are not finite")
        return count
