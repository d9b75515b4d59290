"""Keys and values of one session's context positions, a bounded number of them."""

from __future__ import annotations

import mlx.core as mx

from kakeya_fleet.engine.backends.dflash.context_slots import SLACK_DIVISOR, ContextSlots


class ContextCache(ContextSlots):
    """Keys and values, float32, of positions `first` to `end` in all layers, in position order.

    The latest `positions` at most. Memory grows with what is kept, up to `positions`
    and a quarter. All that is here is computed, so that any thread may go on.
    """

    def __init__(self, shape: tuple[int, int, int], positions: int) -> None:
        """Empty; `shape` is (layers, kv_heads, head_dim)."""
        layers, kv_heads, head_dim = shape
        super().__init__(positions, positions + -(-positions // SLACK_DIVISOR))
        self._slots = mx.zeros((2, layers, kv_heads, 0, head_dim))

    @property
    def memory_bytes(self) -> int:
        """Bytes of the array that keeps them."""
        return self._slots.nbytes

    def extend(self, keys: mx.array, values: mx.array) -> None:
        """Keeps those of positions `end` onwards, [layers * kv_heads, n, head_dim] both."""
        given = keys.shape[1]
        added = self._passed(given)
        if not added:
            return
        self._make_room(added)
        slot = self._begin + self._count
        # In place, as nothing else stands for this memory.
        for part, fresh in enumerate((keys, values)):
            latest = fresh[:, given - added :].reshape(*self._slots.shape[1:3], added, -1)
            self._slots[part, ..., slot : slot + added, :] = latest
        mx.eval(self._slots)
        self._count += added

    def attended(
        self,
        layer: int,
        first: int,
        queries: mx.array,
        block: tuple[mx.array, mx.array],
        mask: mx.array | None,
    ) -> mx.array:
        """See `engine.backends.dflash.kernels.DraftContext`. Not computed yet.

        Only the scores of both are joined, so that the context is never copied.
        """
        heads, rows, head_dim = queries.shape
        before = self.layer(layer, first)
        kv_heads, count, _ = before[0].shape
        grouped = queries.reshape(kv_heads, -1, head_dim)
        parts = [grouped @ keys.swapaxes(1, 2) for keys, _ in (before, block)]
        scores = mx.concatenate(parts, axis=-1)
        if mask is not None:
            scores = (scores.reshape(heads, rows, -1) + mask).reshape(scores.shape)
        weights = mx.softmax(scores, axis=-1)
        output = weights[..., :count] @ before[1] + weights[..., count:] @ block[1]
        return output.reshape(heads, rows, head_dim).swapaxes(0, 1).reshape(rows, -1)

    def layer(self, index: int, first: int) -> tuple[mx.array, mx.array]:
        """Keys and values, [kv_heads, n, head_dim] both, of positions `first` to `end`.

        `first` is one of the positions here, or `end`. Good until the next `extend`.
        """
        end = self._begin + self._count
        slots = slice(end - (self._end - first), end)
        return self._slots[0, index, :, slots], self._slots[1, index, :, slots]

    def _make_room(self, added: int) -> None:
        """Frees `added` slots behind the newest: moves to the front, or into larger memory."""
        size = self._slots_for(added, self._slots.shape[3])
        if size is None:
            return
        kept = self._slots[..., self._kept, :]
        shape = list(self._slots.shape)
        shape[3] = size - self._count
        self._slots = mx.concatenate([kept, mx.zeros(shape)], axis=3)
        mx.eval(self._slots)
        self._begin = 0
