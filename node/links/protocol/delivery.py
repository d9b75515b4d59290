"""Who has what of a link's tensors: each arrives once and in order, whatever fails. Pure.

A direction numbers its tensors from 1. Its sender keeps each until the receiver
has it; its receiver hands them on in the order of their numbers, however they
came: in chunks, over a road, or both after the road's failure.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from kakeya_fleet.node.links.protocol.tensor import WireTensor
from kakeya_fleet.node.rpc.refusals import TensorOutOfOrder

CHUNKS = 0
"""In place of a road's generation: chunks on the control stream."""
# One of these is bad luck; three of one tensor are a host that spoils what it sends.
MOST_CORRUPT_TIMES = 3
MOST_TENSORS = 4096
"""Tensors that an end keeps at most, however small they are."""


@dataclass(slots=True)
class Kept:
    """A tensor that its receiver may not have yet.

    `way` is the generation that carries it, `CHUNKS` for none. `began_at` are the
    seconds at which it set out last. With `is_again` it travels in chunks: a road failed
    it, or it came corrupt.
    """

    tensor_id: int
    tensor: WireTensor
    way: int = CHUNKS
    began_at: float = 0.0
    is_again: bool = False
    is_waiting: bool = True

    @property
    def byte_count(self) -> int:
        """Bytes that it keeps."""
        return len(self.tensor.data)


class Outbox:
    """A direction's sending side, bounded in bytes."""

    def __init__(self, budget_bytes: int) -> None:
        """Keeps `budget_bytes`, or one larger tensor alone; and `MOST_TENSORS`."""
        self._budget_bytes = budget_bytes
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._kept_bytes = 0
        self._last_id = 0
        self._taken = 0
        self._next_new = 1
        self._again: set[int] = set()
        self._under_way = 0

    @property
    def last_id(self) -> int:
        """The number of the newest tensor; 0 before the first."""
        return self._last_id

    @property
    def taken(self) -> int:
        """Every tensor up to this has arrived."""
        return self._taken

    @property
    def under_way(self) -> int:
        """Tensors that have set out and may not have arrived."""
        return self._under_way

    def has_room(self, byte_count: int) -> bool:
        """Whether `add` takes so many bytes more."""
        return not self._kept or (
            self._kept_bytes + byte_count <= self._budget_bytes and len(self._kept) < MOST_TENSORS
        )

    def add(self, tensor: WireTensor) -> int:
        """Takes a tensor, for which there is room, and numbers it."""
        if not self.has_room(len(tensor.data)):
            raise ValueError("the byte budget is used up")
        self._last_id += 1
        kept = Kept(self._last_id, tensor)
        self._kept[kept.tensor_id] = kept
        self._kept_bytes += kept.byte_count
        return kept.tensor_id

    def next(self) -> Kept | None:
        """What is to set out now: what goes again before what is new, lower numbers first."""
        if self._again:
            return self._kept[min(self._again)]
        return self._kept.get(self._next_new)

    def sent(self, tensor_id: int, way: int, now: float) -> None:
        """The tensor that `next` gave sets out on its way."""
        self._again.discard(tensor_id)
        self._next_new = max(self._next_new, tensor_id + 1)
        kept = self._kept.get(tensor_id)
        if kept is not None:
            self._under_way += kept.is_waiting
            kept.way, kept.began_at, kept.is_waiting = way, now, False

    def take(self, through: int) -> list[Kept]:
        """What has arrived newly, now that every tensor up to `through` has.

        Raises `TensorOutOfOrder` for one that was never sent.
        """
        if through >= self._next_new:
            raise TensorOutOfOrder(
                f"tensor {through} is said to have arrived, {self._next_new - 1} were sent"
            )
        arrived = [self._forget(each) for each in range(self._taken + 1, through + 1)]
        self._taken = max(self._taken, through)
        return arrived

    def road_failed(self, generation: int) -> None:
        """What went by that road and has not arrived goes again, in chunks."""
        for kept in self._kept.values():
            if kept.way == generation and not kept.is_waiting:
                self._go_again(kept)

    def came_corrupt(self, tensor_id: int) -> None:
        """That tensor goes again, in chunks, if it was sent at all and has not arrived."""
        kept = self._kept.get(tensor_id)
        if kept is not None and not kept.is_waiting:
            self._go_again(kept)

    def clear(self) -> None:
        """Forgets everything: the link is over."""
        self._kept.clear()
        self._again.clear()
        self._kept_bytes = self._under_way = 0
        self._next_new = self._last_id + 1
        # That more has arrived may be said a little longer.
        self._taken = self._last_id

    def _go_again(self, kept: Kept) -> None:
        kept.is_again = kept.is_waiting = True
        kept.way = CHUNKS
        self._under_way -= 1
        self._again.add(kept.tensor_id)

    def _forget(self, tensor_id: int) -> Kept:
        kept = self._kept.pop(tensor_id)
        self._kept_bytes -= kept.byte_count
        self._under_way -= not kept.is_waiting
        self._again.discard(tensor_id)
        return kept


class Arrivals:
    """A direction's receiving side: puts in order what comes by several ways."""

    def __init__(self) -> None:
        self._through = 0
        self._highest = 0
        self._early: dict[int, WireTensor] = {}
        self._early_bytes = 0
        self._corrupt: dict[int, int] = {}

    @property
    def through(self) -> int:
        """Every tensor up to this has arrived."""
        return self._through

    @property
    def early_count(self) -> int:
        """Tensors that wait for one before them, or were announced before them."""
        return self._highest - self._through

    @property
    def early_bytes(self) -> int:
        """Bytes of tensors that wait for one before them."""
        return self._early_bytes

    def has(self, tensor_id: int) -> bool:
        """Whether it has arrived."""
        return tensor_id <= self._through or tensor_id in self._early

    def begin(self, tensor_id: int) -> bool:
        """Whether a tensor that begins to come in chunks is wanted; one that is here is not.

        Raises `TensorOutOfOrder` when numbers before it were left out.
        """
        if not 1 <= tensor_id <= self._highest + 1:
            raise TensorOutOfOrder(f"tensor {tensor_id} came where {self._highest + 1} was due")
        self._highest = max(self._highest, tensor_id)
        return not self.has(tensor_id)

    def announce(self, tensor_id: int) -> None:
        """A tensor that comes over a road. Raises `TensorOutOfOrder` unless it is the next."""
        if tensor_id != self._highest + 1:
            raise TensorOutOfOrder(
                f"tensor {tensor_id} was announced where {self._highest + 1} was due"
            )
        self._highest = tensor_id

    def arrive(self, tensor_id: int, tensor: WireTensor) -> list[WireTensor]:
        """What can be handed on now, in order; nothing for one that was here already."""
        if self.has(tensor_id):
            return []
        self._corrupt.pop(tensor_id, None)
        self._early[tensor_id] = tensor
        self._early_bytes += len(tensor.data)
        ready: list[WireTensor] = []
        while (following := self._early.pop(self._through + 1, None)) is not None:
            self._through += 1
            self._early_bytes -= len(following.data)
            ready.append(following)
        return ready

    def came_corrupt(self, tensor_id: int) -> bool:
        """Whether a corrupt tensor is to be asked for again: not if it is here already.

        Raises `TensorOutOfOrder` when it came corrupt too often.
        """
        if self.has(tensor_id):
            return False
        times = self._corrupt.get(tensor_id, 0) + 1
        self._corrupt[tensor_id] = times
        if times >= MOST_CORRUPT_TIMES:
            raise TensorOutOfOrder(f"tensor {tensor_id} came corrupt {times} times")
        return True
