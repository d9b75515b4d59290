"""The highest of many values, without sorting them all.

Ids rank by value, the larger first, the lower id first among equals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Values: TypeAlias = "NDArray[np.float32] | NDArray[np.float64]"

# Values of which one maximum is taken before anything is partitioned.
_STRIDE = 64
# Below this many to a maximum the detour costs more than it saves.
_LEAST_STRIDE = 4


def highest(values: Values, count: int) -> NDArray[np.int64]:
    """The ids of the `count` first ranked of `values`, ascending; 0 <= count <= size.

    `values` hold no NaN.
    """
    if count == 0:
        return np.empty(0, np.int64)
    if count == values.size:
        return np.arange(count)
    candidates = _candidates(values, count)
    among = values if candidates is None else values[candidates]
    border = np.partition(among, among.size - count)[among.size - count]
    kept = among > border
    # Several may equal the border; the lowest ids of them complete the count.
    kept[(among == border).nonzero()[0][: count - np.count_nonzero(kept)]] = True
    ids: NDArray[np.int64] = kept.nonzero()[0] if candidates is None else candidates[kept]
    return ids


def _candidates(values: Values, count: int) -> NDArray[np.int64] | None:
    """Ids, ascending, of values among which all of the `count` highest are; None for all.

    Of the maxima of disjoint groups, `count` are at least as large as the
    count-th largest maximum. So are that many values, and none smaller can be
    among the highest.
    """
    stride = min(_STRIDE, values.size // count)
    if stride < _LEAST_STRIDE:
        return None
    group_count = values.size // stride
    maxima = values[: stride * group_count].reshape(stride, group_count).max(axis=0)
    bound = np.partition(maxima, group_count - count)[group_count - count]
    ids: NDArray[np.int64] = (values >= bound).nonzero()[0]
    return ids
