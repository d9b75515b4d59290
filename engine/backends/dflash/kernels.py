"""The seam between a DFlash drafter and back ends: its arrays are touched here alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.contracts.evicted_store import Floats
from kakeya_fleet.engine.models.model_folder import ModelFolder


class DraftArray(Protocol):
    """What every back end's arrays do."""

    def __add__(self, other: Self, /) -> Self:
        """Number by number."""
        ...

    def __getitem__(self, index: slice, /) -> Self:
        """Some of the first dimension."""
        ...


Array = TypeVar("Array", bound=DraftArray)
Map = Callable[[Array], Array]
Indices = NDArray[np.int64]
Candidates = tuple[Indices, Floats]
"""Ids [n, count] of the largest logits of n rows, the largest first, and those logits."""
Turns = tuple[Array, Array]
"""Cosines and sines [n, head_dim] of n positions, as `Angles.of` has them."""


@dataclass(frozen=True, slots=True)
class DraftEnds(Generic[Array]):
    """The target's part of a drafter.

    `embedding` makes the row [hidden_size], float32, of an id; `head` the logits
    [n, vocabulary_size] of [n, hidden_size]. `candidates` finds the largest logits of hidden
    states, so many a row, in one call: None where they are looked for among the head's.
    """

    embedding: Callable[[int], Array]
    head: Map[Array]
    candidates: Callable[[Array, int], Candidates] | None = None


class DraftContext(Protocol[Array]):
    """Keys and values of the latest context positions of one session, a bounded number."""

    @property
    def first(self) -> int:
        """The oldest position that is there, `end` when none is."""
        ...

    @property
    def end(self) -> int:
        """The position behind the newest that is there."""
        ...

    @property
    def memory_bytes(self) -> int:
        """Bytes of the arrays that keep them."""
        ...

    def restart(self, position: int) -> None:
        """Forgets all; the next position is `position`."""
        ...

    def extend(self, keys: Array, values: Array) -> None:
        """Keeps those of positions `end` onwards, [layers * kv_heads, n, head_dim] both."""
        ...

    def attended(
        self, layer: int, first: int, queries: Array, block: tuple[Array, Array], mask: Array | None
    ) -> Array:
        """Attention [rows, heads * head_dim] of scaled `queries` [heads, rows, head_dim].

        To the context from position `first` on, which is there or is `end`, and then to
        keys and values [kv_heads, rows, head_dim] of the `block`, of which nothing is
        kept. `mask` [rows, n of both] is added to scores.
        """
        ...


class Block(Protocol[Array]):
    """A drafter's layers and its last norm."""

    def new_context(self) -> DraftContext[Array]:
        """An empty context, of numbers that this reads."""
        ...

    def __call__(
        self, context: DraftContext[Array], hidden: Array, rows: int, turns: Turns[Array]
    ) -> Array:
        """What the head takes, [rows, hidden_size], of embeddings `hidden` behind the context.

        `turns` are of the block's positions, which begin at the context's end; nothing of the
        block is kept.
        """
        ...


class DraftKernels(Protocol[Array]):
    """A back end's arrays, with products in one number format; all else is float32.

    What a call returns may wait to be computed, unless it says otherwise.
    """

    @property
    def backend(self) -> str:
        """Its name."""
        ...

    @property
    def dtype(self) -> str:
        """`float32` or `bfloat16`, of products."""
        ...

    @property
    def item_bytes(self) -> int:
        """Bytes of one of their numbers."""
        ...

    def read_weights(self, folder: Path, config: DFlashConfig) -> Mapping[str, Array]:
        """The tensors of layers and norms; see `engine.backends.dflash.checkpoint`."""
        ...

    def read_ends(self, target: ModelFolder, config: DFlashConfig) -> DraftEnds[Array]:
        """The ends of the model in `target`; no other tensor is read. All is computed.

        A tied head that is stored is not read, a quantized end stays packed where the
        back end serves such. Raises `TrainedForAnother` when the target's layers, hidden
        size or vocabulary are not those that the drafter's config names, and a
        `ModelUnusable`: what is wrong with the target's config or weights.
        """
        ...

    def new_context(self, config: DFlashConfig) -> DraftContext[Array]:
        """An empty context."""
        ...

    def whole_block(
        self, weights: Mapping[str, Array], config: DFlashConfig
    ) -> Block[Array] | None:
        """All layers in one call of the back end's own, from a checkpoint's tensors.

        None where it has none for such a drafter, whose layers are `LayeredBlock`'s then.
        """
        ...

    def computing(self) -> AbstractContextManager[object]:
        """What encloses everything that is computed for a session."""
        ...

    def settle(self, array: Array) -> None:
        """Computes what waits to be computed of it, so that any thread may go on."""
        ...

    def array(self, numbers: Floats) -> Array:
        """Float32 numbers as an array, perhaps in the same memory."""
        ...

    def joined(self, parts: Sequence[Array]) -> Array:
        """Concatenated in the first dimension."""
        ...

    def repeated(self, row: Array, count: int, scale: float) -> Array:
        """[count, n] of `row` [n], float32, times `scale`."""
        ...

    def norm(self, gain: Array, eps: float) -> Map[Array]:
        """Root mean square norm over the last dimension (Zhang and Sennrich, 2019).

        `gain` [..., n] is that of the last dimensions. All of it is computed.
        """
        ...

    def product(self, weight: Array, rows: int) -> Map[Array]:
        """Multiplies [n, in] by the transposed `weight` [out, in]; n is about `rows`.

        In the weight's number format, with a result in float32. The weight is computed.
        """
        ...

    def normed_product(self, gain: Array, eps: float, weight: Array, rows: int) -> Map[Array]:
        """`product` of what `norm` makes of its input."""
        ...

    def turned_heads(
        self, made: Array, norm: Map[Array], count: int, turns: Turns[Array]
    ) -> tuple[Array, Array]:
        """The first `count` heads of `made` [n, heads * head_dim], and the others.

        [.., n, head_dim] both. The first ones are normed and then turned.
        """
        ...

    def gated(self, made: Array) -> Array:
        """silu(a) * b [n, size / 2] of `made` [n, size] = (a, b)."""
        ...

    def convolved(self, values: Array, deltas: Array, base: Array, side: int) -> Array:
        """The grouped dynamic convolution of `values` [n, channels]; see `convolution.py`.

        `deltas` [n, sides * taps * groups] and `base` [sides, taps, channels] are of all sides.
        """
        ...

    def rows(self, table: Array, indices: Indices) -> Array:
        """[n, size] of the rows `indices` [n] of `table` [.., size]."""
        ...

    def numbers(self, array: Array) -> Floats:
        """What `array` holds, in float32 for numpy, perhaps in the same memory. Computed."""
        ...

    def best(self, logits: Array) -> list[int]:
        """The index of the largest of every row; the first of equal ones."""
        ...
