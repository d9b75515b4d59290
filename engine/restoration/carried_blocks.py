"""Blocks of queries whose attention goes on from what another store has summed up."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic

import numpy as np

from kakeya_fleet.engine.contracts.evicted_store import NOTHING_SEEN, Floats, PartialAttention
from kakeya_fleet.engine.kv.feed import Partial
from kakeya_fleet.engine.kv.kernels import Array, Kernels
from kakeya_fleet.engine.restoration.evicted_blocks import (
    BlockPartial,
    block_partial,
    joined_blocks,
    nothing_seen,
)


@dataclass(frozen=True, slots=True)
class CarriedBlock(Generic[Array]):
    """The attention of `count` queries from row `row` on to each chunk that they see.

    `chunks` are of products of `queries` rows a head, empty when nothing is seen;
    they are in ascending order, and not merged yet.
    """

    row: int
    count: int
    queries: int
    chunks: deque[Partial[Array]]

    def summed(
        self, kernels: Kernels[Array], carry: PartialAttention | None, sizes: tuple[int, int]
    ) -> BlockPartial:
        """All chunks on top of the block's rows of `carry`; `sizes` are heads and head_dim.

        To be called once: the additions write over the chunks.
        """
        heads, head_dim = sizes
        if not self.chunks:
            if carry is None:
                return nothing_seen(heads, self.count, head_dim)
            rows = slice(self.row, self.row + self.count)
            return carry.output[:, rows], carry.total[:, rows], carry.maximum[:, rows]
        if carry is None:
            found = self.chunks.popleft()
        else:
            found = self._carried(kernels, carry, self.chunks[0])
        while self.chunks:
            found = kernels.merged(found, self.chunks.popleft())
        return block_partial(kernels, found, heads, self.queries, self.count)

    def _carried(
        self, kernels: Kernels[Array], carry: PartialAttention, like: Partial[Array]
    ) -> Partial[Array]:
        """The block's rows of `carry` as products have them, with padding rows."""
        total, output, maximum = like
        return (
            kernels.device(self._rows(carry.total, 0.0), total),
            kernels.device(self._rows(carry.output, 0.0), output),
            kernels.device(self._rows(carry.maximum, NOTHING_SEEN), maximum),
        )

    def _rows(self, numbers: Floats, padding: float) -> Floats:
        heads, _, width = numbers.shape
        # Laid out as what is added to it: sums come by heads of keys, and rows.
        padded = np.full((heads, self.queries, width), padding, np.float32)
        padded[:, : self.count] = numbers[:, self.row : self.row + self.count]
        return padded


@dataclass(frozen=True, slots=True)
class CarriedQueries(Generic[Array]):
    """All blocks of one question, which waits for what is carried to it."""

    kernels: Kernels[Array]
    blocks: tuple[CarriedBlock[Array], ...]
    heads: int
    count: int
    head_dim: int

    def check(self, carry: PartialAttention) -> None:
        """Raises `ValueError` for a carry that is not of these queries."""
        sizes = (self.heads, self.count)
        shapes = (carry.output.shape, carry.total.shape, carry.maximum.shape)
        if shapes != ((*sizes, self.head_dim), (*sizes, 1), (*sizes, 1)):
            raise ValueError(f"a carry of {shapes[0]} for {sizes} queries of {self.head_dim}")

    def summed(self, carry: PartialAttention | None) -> PartialAttention:
        """The attention to everything up to the last chunk here."""
        if carry is not None:
            self.check(carry)
        sizes = (self.heads, self.head_dim)
        found = joined_blocks([block.summed(self.kernels, carry, sizes) for block in self.blocks])
        return PartialAttention(
            np.ascontiguousarray(found.output),
            np.ascontiguousarray(found.total),
            np.ascontiguousarray(found.maximum),
        )
