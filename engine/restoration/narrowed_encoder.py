"""Context vectors in the fewer numbers that a learned map of a rank takes of them."""

from __future__ import annotations

from dataclasses import replace

from kakeya_fleet.engine.contracts.feature_encoder import Products
from kakeya_fleet.engine.contracts.features import (
    ContextVectors,
    FeatureEncoder,
    Features,
    FeatureSpec,
)

NARROWING = "down.weight"
"""The tensor [width, context vector] that a map's first part multiplies by."""


class NarrowedEncoder:
    """A `FeatureEncoder` that gives `products` of what another gives.

    The digest of its spec is the other's: it names who made the vectors. What narrows them is
    the map's, whose digest covers it.
    """

    def __init__(self, encoder: FeatureEncoder, products: Products, width: int) -> None:
        self._encoder = encoder
        self._products = products
        self._spec = replace(encoder.spec, width=width)

    @property
    def spec(self) -> FeatureSpec:
        """What it takes and gives."""
        return self._spec

    def encode(self, features: Features) -> ContextVectors:
        """[n, width] from [n, taps, hidden_size]; see `FeatureEncoder`."""
        return self._products(self._encoder.encode(features))
