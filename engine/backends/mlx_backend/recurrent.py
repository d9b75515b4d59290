"""Recurrent layers (gated delta nets): their state, and how a forward is rolled back.

The library's layer computes the projections, the convolution and the gates; the
state comes in and goes out here. MLX's arrays are immutable, so the state before
a forward stays as it was. Rejected tokens are cut off by running the recurrence
from there again over the kept ones: a token's step has one shape, so the bits
are those of a forward of the kept tokens alone. Padding rows are masked: they
leave state and convolution as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

from kakeya_fleet.engine.contracts.positions import WIDE_BLOCK

JOURNAL_TOKENS = WIDE_BLOCK
"""The most tokens of one forward: what a state can be rolled back by."""


@dataclass(frozen=True, slots=True)
class RecurrentShape:
    """The sizes of a gated delta net's state.

    Each of `value_heads` heads has a matrix [value_dim, key_dim] in float32; the
    convolution before it reads `kernel - 1` former rows of `channels` numbers.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def channels(self) -> int:
        """Numbers of a token's convolved row: queries, keys and values of all heads."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def state_bytes(self, item_bytes: int) -> int:
        """Bytes of all arrays of a `RecurrentState`."""
        matrix = self.value_heads * self.key_dim * self.value_dim * 4
        before = (self.kernel - 1 + JOURNAL_TOKENS) * self.channels
        after = JOURNAL_TOKENS * (self.channels + 2 * self.value_heads)
        return 2 * matrix + (before + after) * item_bytes


class RecurrentRule:
    """The recurrence of one layer of the model, without any session's state."""

    def __init__(
        self,
        layer: object,
        shape: RecurrentShape,
        dtype: mx.Dtype,
        update: Callable[..., tuple[mx.array, mx.array]],
    ) -> None:
        """`layer` is the library's; its convolution is wrapped to see the rows it takes.

        `update` is the library's `gated_delta_update`.
        """
        self.shape = shape
        self.dtype = dtype
        self._layer = layer
        self._update = update
        self._convolution = layer.conv1d  # type: ignore[attr-defined]
        self._inputs: mx.array | None = None
        layer.conv1d = self._convolve  # type: ignore[attr-defined]

    def take_inputs(self) -> mx.array:
        """The rows [1, kernel - 1 + n, channels] that the convolution took last; once."""
        inputs, self._inputs = self._inputs, None
        if inputs is None:
            raise ValueError("the layer has convolved nothing since it was last asked")
        return inputs

    def run(
        self, rows: tuple[mx.array, ...], state: mx.array, count: int
    ) -> tuple[mx.array, mx.array]:
        """The outputs of `rows` (queries, keys, values and both gates, [1, n, ...]).

        With them the state after the first `count` of the n.
        """
        # With a mask always: without one the library may choose another kernel.
        mask = mx.arange(rows[0].shape[1])[None] < count
        layer = self._layer
        return self._update(*rows, layer.A_log, layer.dt_bias, state, mask)  # type: ignore[attr-defined]

    def _convolve(self, inputs: mx.array) -> mx.array:
        self._inputs = inputs
        found: mx.array = self._convolution(inputs)
        return found


class RecurrentState:
    """One session's state of one recurrent layer, with the last forward's tokens."""

    def __init__(self, rule: RecurrentRule) -> None:
        shape, dtype = rule.shape, rule.dtype
        matrix = (1, shape.value_heads, shape.value_dim, shape.key_dim)
        keys = (1, JOURNAL_TOKENS, shape.key_heads, shape.key_dim)
        values = (1, JOURNAL_TOKENS, shape.value_heads, shape.value_dim)
        gates = (1, JOURNAL_TOKENS, shape.value_heads)
        self.rule = rule
        self._base = mx.zeros(matrix, mx.float32)
        self._matrix = mx.zeros(matrix, mx.float32)
        rows = shape.kernel - 1 + JOURNAL_TOKENS
        self._inputs = mx.zeros((1, rows, shape.channels), dtype)
        """The convolution's rows of the last forward, behind those before it."""
        self._first = 0
        """Of these rows the first that the next token's convolution may still read."""
        self._journal = [mx.zeros(sizes, dtype) for sizes in (keys, keys, values, gates, gates)]
        self._count = 0
        """Tokens of the last forward."""
        self._kept = 0
        """Those of them that are not rejected."""

    @property
    def arrays(self) -> list[mx.array]:
        """All that it holds."""
        return [self._base, self._matrix, self._inputs, *self._journal]

    @property
    def former_rows(self) -> mx.array:
        """The convolution's last rows [1, kernel - 1, channels]."""
        return self._former_rows(self._kept)

    def truncate(self, kept: int) -> None:
        """Keeps the first `kept` tokens of the last forward."""
        if not 0 <= kept <= self._kept:
            raise ValueError(f"cannot keep {kept} tokens of {self._kept}")
        self._kept = kept

    def settle(self) -> None:
        """Makes what is kept of the last forward final: none of it can be cut off any more."""
        self._base = self._matrix = self._settled(self._kept)
        self._first += self._kept
        self._count = self._kept = 0

    def extend(self, rows: tuple[mx.array, ...], count: int) -> mx.array:
        """Takes the first `count` of `rows`; the outputs of all, see `RecurrentRule.run`."""
        inputs = self.rule.take_inputs()
        if any(part.dtype != self.rule.dtype for part in (inputs, *rows)):
            raise TypeError(f"the layer's rows are not all {self.rule.dtype}")
        self.settle()
        outputs, self._matrix = self.rule.run(rows, self._base, count)
        end = self.rule.shape.kernel - 1 + count
        self._inputs[:, :end] = inputs[:, :end]
        self._first = 0
        for kept, part in zip(self._journal, rows, strict=True):
            kept[:, :count] = part[:, :count]
        self._count = self._kept = count
        return outputs

    def fork(self, kept: int) -> RecurrentState:
        """A state of its own after the first `kept` tokens, which it cannot roll back."""
        copy = RecurrentState(self.rule)
        copy._base = copy._matrix = self._settled(kept)
        copy._inputs[:, : self.rule.shape.kernel - 1] = self._former_rows(kept)
        return copy

    def _former_rows(self, kept: int) -> mx.array:
        first = self._first + kept
        return self._inputs[:, first : first + self.rule.shape.kernel - 1]

    def _settled(self, kept: int) -> mx.array:
        """The matrix after the first `kept` tokens of the last forward."""
        if kept == self._count:
            return self._matrix
        if kept == 0:
            return self._base
        rows = tuple(part[:, :kept] for part in self._journal)
        return self.rule.run(rows, self._base, kept)[1]


class RecurrentFeed:
    """What the library's recurrent layer sees as its cache during one forward."""

    def __init__(self, state: RecurrentState, count: int) -> None:
        """The first `count` rows of the forward are tokens, the others padding."""
        self._state = state
        self._count = count
        self.lengths = mx.array([count])

    def __getitem__(self, index: int) -> object:
        """0: the convolution's former rows; 1: this, for the library to hand to `extend`."""
        return self._state.former_rows if index == 0 else self

    def __setitem__(self, index: int, value: object) -> None:
        """Nothing: `extend` keeps what is to be kept."""

    def make_mask(self, rows: int, **_: object) -> mx.array:
        """Which of the rows are tokens, [1, rows]."""
        return mx.arange(rows)[None] < self._count

    def advance(self, rows: int) -> None:
        """Nothing: positions are counted by the cache."""

    def extend(self, *rows: mx.array) -> mx.array:
        """The outputs of the forward's queries, keys, values and two gates, [1, rows, ...]."""
        return self._state.extend(rows, self._count)
