"""Nearest points of the lattices D4 and E8 within a cube, and their numbers.

D_n are the whole vectors whose sum is even; E8 is D8 and D8 moved by a half in every coordinate.
Nearest points as Conway and Sloane find them (IEEE Trans. Inf. Theory 28, 1982): round, and where
the sum is odd, round the coordinate that was rounded the furthest the other way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Points: TypeAlias = "NDArray[np.float32]"
Numbers: TypeAlias = "NDArray[np.uint64]"


@dataclass(frozen=True, slots=True)
class Lattice:
    """Its points [..., size] whose coordinates are within -reach to reach.

    `has_halves` for the second coset. A point's number has `bits`: by its coset, all but the last
    coordinate in radix 2 * reach + 1, and half of the last one, whose parity is that of the sum.
    """

    size: int
    reach: int
    has_halves: bool

    @property
    def bits(self) -> int:
        """Of a number. At most 64: reach 117 of E8."""
        others: int = self._radix ** (self.size - 1)
        points = (1 + self.has_halves) * (self.reach + 1) * others
        return (points - 1).bit_length()

    @property
    def _radix(self) -> int:
        return 2 * self.reach + 1

    def nearest(self, vectors: Points) -> tuple[Points, NDArray[np.bool_]]:
        """Whole coordinates of the nearest points, without the half, and which have the half."""
        whole = self._even(vectors, self.reach)
        if not self.has_halves:
            return whole, np.zeros(whole.shape[:-1], np.bool_)
        moved = self._even(vectors - np.float32(0.5), self.reach - 1)
        half = _distance(vectors, moved + np.float32(0.5)) < _distance(vectors, whole)
        return np.where(half[..., None], moved, whole), half

    def numbers(self, whole: Points, half: NDArray[np.bool_]) -> Numbers:
        """Numbers [...] of points as `nearest` gives them."""
        digits = (whole + self.reach).astype(np.uint64)
        radix = np.uint64(self._radix)
        found = half.astype(np.uint64)
        for index in range(self.size - 1):
            found = found * radix + digits[..., index]
        return found * np.uint64(self.reach + 1) + digits[..., -1] // np.uint64(2)

    def points(self, numbers: Numbers) -> Points:
        """Points [..., size] of numbers; of one that is no point's, some point near the cube."""
        radix, last = np.uint64(self._radix), np.uint64(self.reach + 1)
        rest, digit = numbers // last, numbers % last
        digits = [2 * digit]
        for _ in range(self.size - 1):
            digits.append(rest % radix)
            rest = rest // radix
        coordinates = np.stack(digits[::-1], axis=-1).astype(np.float32) - np.float32(self.reach)
        odd = coordinates.sum(axis=-1) % 2 != 0
        coordinates[..., -1] += odd
        half = (rest % np.uint64(2)).astype(np.float32) * np.float32(self.has_halves)
        return coordinates + half[..., None] * np.float32(0.5)

    def _even(self, vectors: Points, most: int) -> Points:
        """The nearest whole vectors of an even sum, of coordinates from -reach to `most`."""
        rounded = np.clip(np.rint(vectors), -self.reach, most)
        error = vectors - rounded
        furthest = np.abs(error).argmax(axis=-1)[..., None]
        step = np.where(np.take_along_axis(error, furthest, -1) >= 0, 1.0, -1.0)
        turned = np.take_along_axis(rounded, furthest, -1) + step
        # Beyond the cube the other way is as even.
        turned = np.where((turned > most) | (turned < -self.reach), turned - 2 * step, turned)
        other = rounded.copy()
        np.put_along_axis(other, furthest, turned.astype(np.float32), -1)
        odd = rounded.sum(axis=-1, keepdims=True) % 2 != 0
        return np.where(odd, other, rounded)


def _distance(vectors: Points, points: Points) -> Points:
    """Squared distances, by additions in one order: no tile's bits depend on its company."""
    error = vectors - points
    total: Points = np.square(error[..., 0])
    for index in range(1, error.shape[-1]):
        total = total + np.square(error[..., index])
    return total


def d4(reach: int) -> Lattice:
    """The densest lattice of four dimensions."""
    return Lattice(4, reach, has_halves=False)


def e8(reach: int) -> Lattice:
    """The densest lattice of eight dimensions."""
    return Lattice(8, reach, has_halves=True)
