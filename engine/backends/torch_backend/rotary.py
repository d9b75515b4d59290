"""Rotary position embedding with angles made once a forward, for its positions alone.

Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position
Embedding" (2021), with the halves of a head as the pairs, as in transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.activation import piecewise

BLOCK = 64
BLOCKS_KEPT = 64
"""Of angles; together they take 2 MB for heads of 64 values."""


@dataclass(frozen=True, slots=True)
class Angles:
    """Cosines and signed sines [1, rows, 1, head_dim] of the rows' positions."""

    cos: Tensor
    sin: Tensor

    def rotate_(self, heads: Tensor) -> Tensor:
        """Rotates `heads` [1, rows, n, head_dim] in place."""
        half = heads.shape[-1] // 2
        crossed = torch.roll(heads, half, -1).mul_(self.sin)
        return heads.mul_(self.cos).add_(crossed)


class Rotary:
    """Angles for heads of twice as many values as there are frequencies."""

    def __init__(self, frequencies: Tensor, scaling: float, dtype: torch.dtype) -> None:
        """`frequencies` [head_dim / 2] in float32; cosines and sines are scaled by `scaling`."""
        self._frequencies = torch.cat((frequencies, frequencies))
        self._scaling = scaling
        self._dtype = dtype
        # The first half of a rotated head takes the second one's negative.
        ones = torch.ones_like(frequencies)
        self._signs = torch.cat((-ones, ones)).to(dtype)

    def angles(self, position_ids: Tensor) -> Angles:
        """Those of `position_ids` [1, rows]."""
        angles = position_ids[:, :, None, None].to(torch.float32) * self._frequencies
        cos, sin = piecewise(torch.cos, angles), piecewise(torch.sin, angles)
        if self._scaling != 1:
            cos, sin = cos.mul_(self._scaling), sin.mul_(self._scaling)
        return Angles(cos.to(self._dtype), sin.to(self._dtype).mul_(self._signs))


class PlacedAngles:
    """Angles, and where in memory those from a row on lie."""

    def __init__(self, angles: Angles) -> None:
        self._angles = angles
        self._cosines, self._sines = angles.cos.data_ptr(), angles.sin.data_ptr()
        self._row_bytes = angles.cos[:, :1].nbytes

    def addresses(self, row: int) -> tuple[int, int]:
        """Of the cosines and the sines of `row` and those behind it."""
        skipped = row * self._row_bytes
        return self._cosines + skipped, self._sines + skipped

    def rows(self, first: int, end: int) -> Angles:
        """Those of some rows."""
        return Angles(self._angles.cos[:, first:end], self._angles.sin[:, first:end])


class AngleBlocks:
    """The angles of positions that follow each other, made a block of them at once and kept.

    To make those of one position takes longer than to draft a token's layer.
    """

    def __init__(self, rotary: Rotary) -> None:
        self._rotary = rotary
        self._block = lru_cache(maxsize=BLOCKS_KEPT)(self._made)

    def placed(self, spans: Sequence[tuple[int, int]]) -> tuple[PlacedAngles, int]:
        """Those of spans, each of a first position and how many there are, one after the other.

        And the row in which they begin.
        """
        if len(spans) == 1:
            first, count = spans[0]
            block, at = divmod(first, BLOCK)
            if at + count <= BLOCK:
                # Of one token no tensor is made: that takes longer than to find them.
                return self._block(block), at
        return PlacedAngles(self.of(spans)), 0

    def of(self, spans: Sequence[tuple[int, int]]) -> Angles:
        """As `placed`, in tensors."""
        pieces = [piece for first, count in spans for piece in self._pieces(first, first + count)]
        if len(pieces) == 1:
            return pieces[0]
        return Angles(
            torch.cat([piece.cos for piece in pieces], dim=1),
            torch.cat([piece.sin for piece in pieces], dim=1),
        )

    def _pieces(self, first: int, end: int) -> Iterator[Angles]:
        while first < end:
            block, at = divmod(first, BLOCK)
            stop = min(end - block * BLOCK, BLOCK)
            yield self._block(block).rows(at, stop)
            first = block * BLOCK + stop

    def _made(self, block: int) -> PlacedAngles:
        positions = torch.arange(block * BLOCK, (block + 1) * BLOCK)
        return PlacedAngles(self._rotary.angles(positions[None]))
