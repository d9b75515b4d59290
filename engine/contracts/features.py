"""Context features: one vector a position, made from a verifier's hidden states.

A DFlash drafter is conditioned on them, and a projection restorer makes keys and
values from them. The encoder is `hidden_norm(fc(concatenated hidden states))`
(DFlash, 2026): it runs on the verifier's side, so that one vector a committed
position travels, and it is a function of that position's hidden states alone,
so that a vector never goes stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Features: TypeAlias = "NDArray[np.float32]"
"""[n, taps, hidden size]: hidden states of n positions, as a verifier's forward tapped them."""

ContextVectors: TypeAlias = "NDArray[np.float32]"
"""[n, width], one row a position."""


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """What the vectors are made of.

    `taps` are the verifier's layers, from 0, whose outputs are concatenated;
    `hidden_size` is that of each; `width` the values of one vector; `digest` the
    SHA-256 of the encoder's weights in hexadecimal.
    """

    taps: tuple[int, ...]
    hidden_size: int
    width: int
    digest: str


class FeatureEncoder(Protocol):
    """Makes context vectors from tapped hidden states. Any thread may call."""

    @property
    def spec(self) -> FeatureSpec:
        """What it takes and gives."""
        ...

    def encode(self, features: Features) -> ContextVectors:
        """[n, width] from [n, taps, hidden_size], n >= 0.

        A row's bits depend on that row alone, not on n. Raises `ValueError` for
        another shape.
        """
        ...
