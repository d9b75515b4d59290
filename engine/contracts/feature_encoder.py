"""The context encoder `hidden_norm(fc(hidden states))` as arrays (DFlash, 2026).

Any node can run it beside its verifier: it needs the weights of two tensors and
no model, whatever back end computes the verifier or the drafter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kakeya_fleet.engine.contracts.features import ContextVectors, Features, FeatureSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

Rows: TypeAlias = "NDArray[np.float32]"
Products: TypeAlias = Callable[[Rows], Rows]
"""[n, width] of [n, inputs]; the bits of a row are that row's alone."""

# Rows of every product. The kernel that multiplies depends on the shape, and a row's
# rounding on the kernel: with one shape a row's bits are its own. A block commits two
# to four positions, and two rows take no longer by the row than eight.
ROWS = 2


@dataclass(frozen=True, eq=False)
class EncoderWeights:
    """Weights of an encoder: float32, finite; raises `ValueError` for shapes that do not fit.

    `fc` is [width, taps * hidden_size], the taps' inputs after each other in the
    order of `taps`, `norm` [width] the gain of the root mean square norm
    (Zhang and Sennrich, 2019), `eps` what is added below its root.
    """

    fc: NDArray[np.float32]
    norm: NDArray[np.float32]
    eps: float
    taps: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.fc.ndim != 2 or self.norm.shape != self.fc.shape[:1] or not self.fc.size:
            raise ValueError(f"fc {self.fc.shape} and norm {self.norm.shape} are no encoder")
        if not self.taps or self.fc.shape[1] % len(self.taps):
            raise ValueError(f"{self.fc.shape[1]} inputs are not those of taps {self.taps}")
        if self.fc.dtype != np.float32 or self.norm.dtype != np.float32:
            raise ValueError(f"weights are {self.fc.dtype} and {self.norm.dtype}, not float32")
        if not (np.isfinite(self.fc).all() and np.isfinite(self.norm).all()):
            raise ValueError("the weights are not finite")
        if not (np.isfinite(self.eps) and self.eps >= 0.0):
            raise ValueError(f"eps {self.eps} is not a finite number from 0 on")

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal digits, of all that decides what the encoder makes.

        Covers the taps and the shape as 8 bytes each, big-endian, `eps` as a
        big-endian binary64, then `fc` and `norm` as little-endian binary32.
        """
        digest = hashlib.sha256()
        for count in (len(self.taps), *self.taps, *self.fc.shape):
            digest.update(count.to_bytes(8, "big"))
        digest.update(np.array(self.eps, ">f8").tobytes())
        for values in (self.fc, self.norm):
            digest.update(np.ascontiguousarray(values, "<f4").data)
        return digest.hexdigest()


class PairedProducts:
    """`Products` of `fc` [width, inputs] by NumPy, two rows at a time."""

    def __init__(self, fc: Rows) -> None:
        # Twice as fast as multiplying with a transposed view.
        self._transposed = np.ascontiguousarray(fc.T)

    def __call__(self, rows: Rows) -> Rows:
        """See `Products`."""
        count, inputs = rows.shape
        padded = np.zeros((-(-count // ROWS) * ROWS, inputs), np.float32)
        padded[:count] = rows
        pairs = np.matmul(padded.reshape(-1, ROWS, inputs), self._transposed)
        made: Rows = pairs.reshape(len(padded), self._transposed.shape[1])[:count]
        return made


class ContextEncoder:
    """A `FeatureEncoder` of these weights."""

    def __init__(self, weights: EncoderWeights, products: Products | None = None) -> None:
        """`products` are those of `weights.fc`, NumPy's if None."""
        self._weights = weights
        self._products = PairedProducts(weights.fc) if products is None else products
        self._spec = FeatureSpec(
            taps=weights.taps,
            hidden_size=weights.fc.shape[1] // len(weights.taps),
            width=weights.fc.shape[0],
            digest=weights.digest,
        )

    @property
    def spec(self) -> FeatureSpec:
        """What it takes and gives."""
        return self._spec

    @property
    def weights(self) -> EncoderWeights:
        """What it is made of."""
        return self._weights

    def encode(self, features: Features) -> ContextVectors:
        """[n, width] from [n, taps, hidden_size], n >= 0.

        A row's bits depend on that row alone. Raises `ValueError` for another shape.
        """
        spec = self._spec
        if features.ndim != 3 or features.shape[1:] != (len(spec.taps), spec.hidden_size):
            raise ValueError(
                f"hidden states {features.shape} are not [n, {len(spec.taps)}, {spec.hidden_size}]"
            )
        count = len(features)
        encoded = self._products(features.reshape(count, self._weights.fc.shape[1]))
        squares = np.mean(encoded * encoded, axis=1, dtype=np.float32, keepdims=True)
        encoded *= 1.0 / np.sqrt(squares + np.float32(self._weights.eps))
        encoded *= self._weights.norm
        return encoded
