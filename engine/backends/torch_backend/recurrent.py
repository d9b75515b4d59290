"""One session's state of one recurrent layer, with what it takes to roll a forward back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.recurrent_shape import JOURNAL_TOKENS

if TYPE_CHECKING:
    from kakeya_fleet.engine.backends.torch_backend.delta_rule import DeltaRule


class RecurrentState:
    """The state after the history, and the last forward's tokens with the state before them.

    Rejected tokens are cut off by going through the kept ones again, with the
    same operations on the same shapes: the bits are those of a forward of the
    kept tokens alone. All tensors are allocated at once.
    """

    def __init__(self, rule: DeltaRule) -> None:
        shape = rule.shape
        matrix = (shape.value_heads, shape.key_dim, shape.value_dim)
        self._rule = rule
        self._count = 0
        place = rule.place
        self._base = torch.zeros(matrix, device=place)
        self._matrix = torch.zeros(matrix, device=place)
        """The state after the journal's tokens; that of `_base` while there are none."""
        rows = shape.kernel - 1 + JOURNAL_TOKENS
        self._inputs = torch.zeros(rows, shape.channels, dtype=shape.dtype, device=place)
        """The last `kernel - 1` inputs before the journal, then the journal's."""
        gates = (JOURNAL_TOKENS, 2, shape.value_heads)
        self._gates = torch.zeros(gates, dtype=shape.dtype, device=place)

    @property
    def arrays(self) -> tuple[Tensor, ...]:
        """All tensors; their bytes are `RecurrentShape.state_bytes`."""
        return self._base, self._matrix, self._inputs, self._gates

    @torch.inference_mode()
    def extend(self, inputs: Tensor, gates: Tensor) -> Tensor:
        """Takes tokens' projected rows; the outputs [n, value_heads, value_dim] in float32.

        `inputs` [n, channels] are queries, keys and values before the
        convolution, `gates` [n, 2, value_heads] those of writing and decay.
        The tokens of the call before can no longer be cut off.
        """
        count = inputs.shape[0]
        if not 1 <= count <= JOURNAL_TOKENS:
            raise ValueError(f"a forward takes 1 to {JOURNAL_TOKENS} tokens, not {count}")
        self.settle()
        before = self._rule.shape.kernel - 1
        self._inputs[before : before + count] = inputs
        self._gates[:count] = gates
        self._count = count
        return self._run()

    @torch.inference_mode()
    def truncate(self, count: int) -> None:
        """Keeps the first `count` tokens of the last `extend`.

        Raises `ValueError` unless there are so many left of it.
        """
        if not 0 <= count <= self._count:
            raise ValueError(f"cannot keep {count} tokens of {self._count}")
        if count < self._count:
            self._count = count
            if count:
                self._run()

    @torch.inference_mode()
    def settle(self) -> None:
        """Makes the last forward's tokens final: none of them can be cut off any more."""
        if not self._count:
            return
        self._base, self._matrix = self._matrix, self._base
        before = self._rule.shape.kernel - 1
        self._inputs[:before] = self._inputs[self._count : self._count + before].clone()
        self._count = 0

    @torch.inference_mode()
    def fork(self, kept: int) -> RecurrentState:
        """A state of its own after the first `kept` tokens of the last forward, all final."""
        copy = RecurrentState(self._rule)
        copy._count = self._count
        for target, source in zip(copy.arrays, self.arrays, strict=True):
            target.copy_(source)
        copy.truncate(kept)
        copy.settle()
        return copy

    def _run(self) -> Tensor:
        """Goes through the journal's tokens from the base."""
        before = self._rule.shape.kernel - 1
        rows = self._rule.rows(self._inputs[: before + self._count], self._gates[: self._count])
        return self._rule.run(rows, self._base, self._matrix)
