"""Keys and values of one session's context positions, a bounded number of them."""

from __future__ import annotations

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.dflash.context_slots import SLACK_DIVISOR, ContextSlots
from kakeya_fleet.engine.backends.torch_backend.device import HOST, Device

READ_BEHIND = 15
"""Slots that are read behind the last one, and count for nothing: reads go by sixteen."""


class ContextCache(ContextSlots):
    """Keys and values of positions `first` to `end` in all layers, in position order.

    The latest `positions` at most. The slots behind them serve the block being
    drafted, and nothing of it is kept. Memory grows with what is kept, up to
    `positions` and a quarter. Used by one thread at a time.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        positions: int,
        block_size: int,
        device: Device = HOST,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Empty; `shape` is (layers, kv_heads, head_dim), a block has `block_size` rows at most.

        `dtype` is that of the keys and values that are kept.
        """
        layers, kv_heads, head_dim = shape
        super().__init__(positions, positions + max(positions // SLACK_DIVISOR, block_size))
        self._device = device
        self._dtype = dtype
        self._shape = (layers, kv_heads, head_dim)
        self._slots = self._new_slots(0)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the tensor that keeps them."""
        return self._slots.nbytes

    @property
    def slots(self) -> Tensor:
        """Keys and values [2, layers, kv_heads, slots, head_dim], all finite.

        `READ_BEHIND` slots more lie behind the last. Good until room is made.
        """
        return self._slots

    @property
    def slot_of_end(self) -> int:
        """The slot of position `end`; those of earlier positions lie before it in order."""
        return self._begin + self._count

    def extend(self, keys: Tensor, values: Tensor) -> None:
        """Keeps those of positions `end` onwards, [layers * kv_heads, n, head_dim] both."""
        given = keys.shape[1]
        added = self._passed(given)
        self.make_room(added)
        slot = self._begin + self._count
        for kept, fresh in zip(self._slots.flatten(1, 2), (keys, values), strict=True):
            kept[:, slot : slot + added] = fresh[:, given - added :]
        self._count += added

    def make_room(self, rows: int) -> None:
        """Frees `rows` slots behind the newest: moves to the front, or into larger memory."""
        size = self._slots_for(rows, self._slots.shape[3])
        if size is None:
            return
        kept = self._slots[..., self._kept, :]
        if size == self._slots.shape[3]:
            self._slots[..., : self._count, :] = kept.clone()
        else:
            slots = self._new_slots(size)
            slots[..., : self._count, :] = kept
            self._slots = slots
        self._begin = 0

    def _new_slots(self, count: int) -> Tensor:
        layers, kv_heads, head_dim = self._shape
        size = 2 * layers * kv_heads * count * head_dim
        numbers = torch.zeros(
            size + READ_BEHIND * head_dim, dtype=self._dtype, device=self._device.place
        )
        return numbers[:size].view(2, layers, kv_heads, count, head_dim)

    def attended(
        self,
        layer: int,
        first: int,
        queries: Tensor,
        block: tuple[Tensor, Tensor],
        mask: Tensor | None,
    ) -> Tensor:
        """See `engine.backends.dflash.kernels.DraftContext`. In float32."""
        heads, rows, head_dim = queries.shape
        self.make_room(rows)
        keys, values = self.with_block(layer, first, *block)
        grouped = queries.reshape(len(keys), -1, head_dim)
        scores = torch.bmm(grouped, keys.transpose(1, 2))
        if mask is not None:
            scores = (scores.view(heads, rows, -1) + mask).view(scores.shape)
        output = torch.bmm(torch.softmax(scores, dim=-1), values)
        return output.view(heads, rows, head_dim).transpose(0, 1).reshape(rows, -1)

    def with_block(
        self, layer: int, first: int, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Keys and values, [kv_heads, n, head_dim] both, of `first` onwards and then the block's.

        `keys` and `values` [kv_heads, rows, head_dim] are those of the block,
        which begins at `end`; `make_room` made room for it. `first` is one of
        the positions here, or `end`. What is returned is good until the next call.
        """
        slot = self._begin + self._count
        behind = slot + keys.shape[1]
        self._slots[0, layer, :, slot:behind] = keys
        self._slots[1, layer, :, slot:behind] = values
        seen = self._slots[:, layer, :, slot - (self._end - first) : behind]
        return seen[0], seen[1]
