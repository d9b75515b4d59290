"""How archives pack what a session evicts, as far as placing it needs to know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kakeya_fleet.fleet.cards.card import ModelOffer

TILE = 64
"""Positions that leave a window, and are packed, together."""
_BITS_OF_FLOAT32, _BITS = 32, 16


@dataclass(frozen=True, slots=True)
class Packing:
    """A codec, by the quality that it was asked for.

    `bits` a packed number at most, scales included, for heads of 64 channels and more; the
    mean divergence from what is not packed is `divergence_nats`, measured on `measured_on`.
    """

    codec: str
    quality: str
    bits: float
    divergence_nats: float
    measured_on: str

    def bytes_per_position(self, offer: ModelOffer) -> int:
        """Bytes that an archive keeps of one position of the model at most."""
        return math.ceil(offer.kv_bytes_per_token * self.bits / _bits(offer.dtype))

    def reason(self, dtype: str) -> str:
        """A sentence of plans for a verifier whose cache is of `dtype`."""
        times = _bits(dtype) / self.bits
        return (
            f"What is evicted is packed by {self.codec} (--kv-quality {self.quality}): "
            f"{self.bits:g} bits a number at most instead of {_bits(dtype)}, {times:.1f} times the "
            f"context a byte. On {self.measured_on} that moved the choices' distributions by "
            f"{self.divergence_nats:.4f} nats."
        )


def packed_sink(sink: int, packing: Packing | None) -> int:
    """Positions at the start that stay resident: whole tiles where others are packed."""
    return sink if packing is None else -(-sink // TILE) * TILE


def packed_window(window: int, packing: Packing | None) -> int:
    """The most latest positions that stay resident: a tile leaves as a whole."""
    return window if packing is None else window + TILE - 1


def _bits(dtype: str) -> int:
    """Of a number as it lies in a cache."""
    return _BITS_OF_FLOAT32 if dtype == "float32" else _BITS
