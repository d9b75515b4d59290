"""How what leaves a session's window is packed, as far as placing it needs to know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kakeya_fleet.fleet.cards.card import ModelOffer
    from kakeya_fleet.fleet.placement.codec_ladder import Divergence

TILE = 64
"""Positions that leave a window, and are packed, together."""
FULL_SINK, FULL_WINDOW = TILE, TILE
"""First and latest positions of a `full` session that stay as they lie, unless it asks for more of
the latest: what is behind them is packed in the verifier's own memory."""
_BITS_OF_FLOAT32, _BITS = 32, 16


@dataclass(frozen=True, slots=True)
class Packing:
    """A codec, by the quality that it was asked for.

    `bits` a packed number at most, scales included, for heads of 64 channels and more; the
    mean divergence from what is not packed is `divergence_nats`, measured on `measured_on`, a
    published model; `measured` on the model itself by this node, None before it was.
    """

    codec: str
    quality: str
    bits: float
    divergence_nats: float
    measured_on: str
    measured: Divergence | None = None

    def bytes_per_position(self, offer: ModelOffer) -> int:
        """Bytes of one position of the model at most, wherever it is kept."""
        return math.ceil(offer.kv_bytes_per_token * self.bits / _bits(offer.dtype))

    def reason(self, dtype: str, *, full_window: int | None = None) -> str:
        """A sentence of plans for a verifier whose cache is of `dtype`.

        Of one that keeps all by itself, so many positions as they lie, or of what it evicts.
        """
        times = _bits(dtype) / self.bits
        what = (
            "What is evicted"
            if full_window is None
            else f"What is behind the latest {full_window} positions stays on the verifier and"
        )
        return (
            f"{what} is packed by {self.codec} (--kv-quality {self.quality}): "
            f"{self.bits:g} bits a number at most instead of {_bits(dtype)}, {times:.1f} times the "
            f"context a byte. {self._divergence}"
        )

    def reason_when_short(self, dtype: str) -> str:
        """A sentence of plans for a `full` session that is packed only where memory is short."""
        return (
            "Where the verifier has no free memory for all keys and values, the session is packed "
            f"by {self.codec} (--kv-quality-when-short {self.quality}) from then on: "
            f"{_bits(dtype) / self.bits:.1f} times the context a byte, its history computed once "
            f"more. {self._divergence}"
        )

    @property
    def _divergence(self) -> str:
        """How far it moves what is chosen, and where that was measured."""
        found = self.measured
        if found is None:
            return (
                f"On {self.measured_on} that moved the choices' distributions by "
                f"{self.divergence_nats:.4f} nats; of this model it was not measured here yet."
            )
        return (
            f"Measured here on {found.count} positions of this model, that moves the choices' "
            f"distributions by {found.mean:.4f} nats, {found.most:.4f} at most."
        )


def packed_sink(sink: int, tile: int) -> int:
    """Positions at the start that stay resident: whole tiles of what is packed together."""
    return -(-sink // tile) * tile


def packed_window(window: int, tile: int) -> int:
    """The most latest positions that stay resident: a tile leaves as a whole."""
    return window + tile - 1


def _bits(dtype: str) -> int:
    """Of a number as it lies in a cache."""
    return _BITS_OF_FLOAT32 if dtype == "float32" else _BITS
