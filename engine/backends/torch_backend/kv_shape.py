"""The numbers that shape a model's keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class KvShape:
    """Shape and dtype of a model's K/V, and of the queries that meet them.

    `groups` query heads share each of `kv_heads`; `width` is the number of
    queries of every forward; `context_length` the model's positions.
    """

    layers: int
    kv_heads: int
    groups: int
    head_dim: int
    width: int
    context_length: int
    dtype: torch.dtype

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of one position's keys and values over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize
