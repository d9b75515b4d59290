"""Partial attentions of the parts of a block, put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kakeya_fleet.engine.contracts.evicted_store import PartialAttention


def joined(parts: Sequence[PartialAttention]) -> PartialAttention:
    """The partial attention of all queries, from those of consecutive ones."""
    if len(parts) == 1:
        return parts[0]
    return PartialAttention(
        output=np.concatenate([part.output for part in parts], axis=1),
        total=np.concatenate([part.total for part in parts], axis=1),
        maximum=np.concatenate([part.maximum for part in parts], axis=1),
    )


def rows_of(whole: PartialAttention, first: int, end: int) -> PartialAttention:
    """The partial attention of the queries `first` to `end`, exclusive."""
    return PartialAttention(
        output=whole.output[:, first:end],
        total=whole.total[:, first:end],
        maximum=whole.maximum[:, first:end],
    )
