"""Keys and values of one session's context positions, a bounded number of them."""

from __future__ import annotations

import mlx.core as mx

SLACK_DIVISOR = 4
"""A quarter of slots more than positions: a position is moved to the front four times at most."""
FIRST_SLOTS = 256
ITEM_BYTES = 4


class ContextCache:
    """Keys and values, float32, of positions `first` to `end` in all layers, in position order.

    The latest `positions` at most. Memory grows with what is kept, up to `positions`
    and a quarter. All that is here is computed, so that any thread may go on.
    """

    def __init__(self, shape: tuple[int, int, int], positions: int) -> None:
        """Empty; `shape` is (layers, kv_heads, head_dim)."""
        layers, kv_heads, head_dim = shape
        self._positions = positions
        self._most_slots = positions + -(-positions // SLACK_DIVISOR)
        self._slots = mx.zeros((2, layers, kv_heads, 0, head_dim))
        self._begin = 0
        self._count = 0
        self._end = 0

    @property
    def first(self) -> int:
        """The oldest position that is there, `end` when none is."""
        return self._end - self._count

    @property
    def end(self) -> int:
        """The position behind the newest that is there."""
        return self._end

    @property
    def memory_bytes(self) -> int:
        """Bytes of the array that keeps them."""
        return int(self._slots.size) * ITEM_BYTES

    def restart(self, position: int) -> None:
        """Forgets all; the next position is `position`."""
        self._begin = self._count = 0
        self._end = position

    def extend(self, keys_values: mx.array) -> None:
        """Keeps positions `end` onwards: [2, layers, kv_heads, n, head_dim], keys first."""
        added = keys_values.shape[3]
        self._end += added
        if added > self._positions:
            keys_values = keys_values[..., added - self._positions :, :]
            added = self._positions
        if not added:
            return
        dropped = max(0, self._count + added - self._positions)
        self._begin += dropped
        self._count -= dropped
        self._make_room(added)
        slot = self._begin + self._count
        # In place, as nothing else stands for this memory.
        self._slots[..., slot : slot + added, :] = keys_values
        mx.eval(self._slots)
        self._count += added

    def layer(self, index: int, first: int) -> tuple[mx.array, mx.array]:
        """Keys and values, [kv_heads, n, head_dim] both, of positions `first` to `end`.

        `first` is one of the positions here, or `end`. Good until the next `extend`.
        """
        end = self._begin + self._count
        slots = slice(end - (self._end - first), end)
        return self._slots[0, index, :, slots], self._slots[1, index, :, slots]

    def _make_room(self, added: int) -> None:
        """Frees `added` slots behind the newest: moves to the front, or into larger memory."""
        there = self._slots.shape[3]
        needed = self._count + added
        if self._begin + needed <= there:
            return
        if there == self._most_slots or needed + there // SLACK_DIVISOR <= there:
            size = there
        else:
            size = min(self._most_slots, max(needed, 2 * there, FIRST_SLOTS))
        kept = self._slots[..., self._begin : self._begin + self._count, :]
        shape = list(self._slots.shape)
        shape[3] = size - self._count
        self._slots = mx.concatenate([kept, mx.zeros(shape)], axis=3)
        mx.eval(self._slots)
        self._begin = 0
