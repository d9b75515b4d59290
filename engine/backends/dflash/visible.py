"""Which keys the rows of a block see, in one kind of layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kakeya_fleet.engine.backends.dflash.config import DraftLayerRule


@dataclass(frozen=True, slots=True)
class VisibleKeys:
    """Keys from position `first` on are seen; of those not by all rows, as `mask` says.

    `mask` [rows, n] is added to scores: 0, or minus infinity. None when all rows
    see all of them.
    """

    first: int
    mask: NDArray[np.float32] | None


def visible_keys(
    rule: DraftLayerRule, context_first: int, block_first: int, rows: int
) -> VisibleKeys:
    """What a block at positions `block_first` onwards sees, the context's keys and its own.

    Bidirectional: all within `window`, that included, before and behind. Causal:
    none behind, and fewer than `window` before, as in the library's masks.
    """
    first = context_first
    if rule.window is not None:
        first = max(first, block_first - rule.window + int(rule.causal))
        widest = block_first + rows - 1 - first
        narrow = max(widest + int(rule.causal), rows - 1) > rule.window
    else:
        narrow = False
    if not (rule.causal or narrow):
        return VisibleKeys(first, None)
    queries = np.arange(block_first, block_first + rows)[:, None]
    distance = queries - np.arange(first, block_first + rows)
    hidden = distance < 0 if rule.causal else np.zeros(distance.shape, np.bool_)
    if rule.window is not None:
        hidden |= distance >= rule.window if rule.causal else np.abs(distance) > rule.window
    return VisibleKeys(first, np.where(hidden, np.float32("-inf"), np.float32(0.0)))
