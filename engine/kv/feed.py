"""What the queries of one session's part of a forward see, and where they read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import numpy as np

from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.kv.chunks import Chunks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Spans: TypeAlias = "NDArray[np.int64]"

Array = TypeVar("Array")

Partial = tuple[Array, Array, Array]
"""Sums of weights [kv_heads, rows, 1], weighted values [kv_heads, rows, head_dim] and maxima
[kv_heads, rows, 1] in float32: attention to some of the keys, not divided by the sums yet.
"""


@dataclass(frozen=True, slots=True)
class Masks(Generic[Array]):
    """What the queries of one feed see of the layers that are placed alike.

    They are in the forward's rows from `first_row` on. `queries` rows go into a
    product for `count` real ones; `chunks` are the segments to read, `biases` their
    masks. `evicted_from` is the position of the first query when any of them sees
    evicted keys besides, else None. A ring of one segment may have its mask
    `stacked`, [groups * queries, keys], besides. Where each query sees one run of
    slots, `spans` [2, queries] has their first ones and their ends.
    """

    first_row: int
    count: int
    queries: int
    chunks: Chunks
    biases: tuple[Array | None, ...]
    evicted_from: int | None = None
    stacked: Array | None = None
    spans: Spans | None = None


@dataclass(frozen=True, slots=True)
class EvictedRead:
    """Where a feed's queries, at positions `first` onwards, attend to evicted keys of `layer`."""

    store: EvictedStore
    layer: int
    first: int


@dataclass(frozen=True, slots=True)
class FeedSegments(Generic[Array]):
    """What one feed reads of one layer, here and of what was evicted.

    `keys[s]` and `values[s]` are a segment's, as `engine.kv.kernels.Segment` has them.
    """

    masks: Masks[Array]
    keys: Sequence[Array]
    values: Sequence[Array]
    evicted: EvictedRead | None = None
