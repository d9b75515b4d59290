"""Keys and values of whole tiles, packed and unpacked together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import TILE

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.tile import Codec, Floats, Packed


@dataclass(frozen=True, slots=True)
class KvCodec:
    """How a layer's keys and values are packed.

    Packed, the keys and values of a head and tile lie one behind the other: [layers, 1,
    kv_heads, tiles, `tile_bytes`].
    """

    name: str
    keys: Codec
    values: Codec

    @property
    def version(self) -> int:
        """Raised with either's: what was packed under another is not unpacked."""
        return max(self.keys.version, self.values.version)

    def tile_bytes(self, head_dim: int) -> int:
        """Bytes of a head's keys and values of one tile. Raises `CodecRefused` for such heads."""
        return self.keys.tile_bytes(head_dim) + self.values.tile_bytes(head_dim)

    def encode(self, numbers: Floats) -> Packed:
        """Packs numbers [layers, 2, kv_heads, n, head_dim] of whole tiles.

        Raises `CodecRefused` for other counts, and for numbers that it cannot pack.
        """
        layers, _, heads, count, head_dim = numbers.shape
        if count % TILE:
            raise CodecRefused(f"{count} positions are no whole tiles of {TILE}")
        parts = [
            codec.encode(np.ascontiguousarray(numbers[:, part]).reshape(-1, TILE, head_dim))
            for part, codec in enumerate((self.keys, self.values))
        ]
        return np.concatenate(parts, axis=1).reshape(layers, 1, heads, count // TILE, -1)

    def decode(self, packed: Packed, head_dim: int) -> Floats:
        """The numbers [layers, 2, kv_heads, n, head_dim] that packed ones stand for.

        Raises `CodecRefused` for bytes that are none of this codec's.
        """
        return np.stack([self.decode_part(packed, head_dim, part) for part in range(2)], axis=1)

    def decode_part(self, packed: Packed, head_dim: int, part: int) -> Floats:
        """The keys, `part` 0, or the values, 1: [layers, kv_heads, n, head_dim]."""
        layers, _, heads, tiles, _ = packed.shape
        rows = self._rows(packed, head_dim, part)
        return self._codec(part).decode(rows, head_dim).reshape(layers, heads, tiles * TILE, -1)

    def check(self, packed: Packed, head_dim: int) -> None:
        """Raises `CodecRefused` for bytes whose numbers would not be finite."""
        for part in range(2):
            self._codec(part).check(self._rows(packed, head_dim, part), head_dim)

    def _codec(self, part: int) -> Codec:
        return self.values if part else self.keys

    def _rows(self, packed: Packed, head_dim: int, part: int) -> Packed:
        """Tiles [n, bytes] of keys or values."""
        border = self.keys.tile_bytes(head_dim)
        own = packed[..., border:] if part else packed[..., :border]
        return np.ascontiguousarray(own).reshape(-1, own.shape[-1])
