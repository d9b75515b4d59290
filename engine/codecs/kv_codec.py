"""Keys and values of whole tiles, packed and unpacked together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import TILE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from kakeya_fleet.engine.codecs.tile import Codec, Floats, Packed

    Pack: TypeAlias = "Callable[[Codec, NDArray[Any]], Packed]"


def plainly(codec: Codec, tiles: NDArray[Any]) -> Packed:
    """As the codec itself packs tiles of float32."""
    return codec.encode(tiles)


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

    def bits_a_value(self, head_dim: int) -> float:
        """Bits of one packed number, of keys and values together, with its share of all scales."""
        return 8 * self.tile_bytes(head_dim) / (2 * TILE * head_dim)

    def encode(self, numbers: NDArray[Any], pack: Pack = plainly) -> Packed:
        """Packs numbers [layers, 2, kv_heads, n, head_dim] of whole tiles.

        `pack` has each codec pack tiles [n, 64, head_dim]; it may take other formats than
        float32. Raises `CodecRefused` for other counts, and for numbers that cannot be packed.
        """
        layers, _, heads, count, head_dim = numbers.shape
        if count % TILE:
            raise CodecRefused(f"{count} positions are no whole tiles of {TILE}")
        parts = [
            pack(codec, np.ascontiguousarray(numbers[:, part]).reshape(-1, TILE, head_dim))
            for part, codec in enumerate((self.keys, self.values))
        ]
        return np.concatenate(parts, axis=1).reshape(layers, 1, heads, count // TILE, -1)

    def decode(self, packed: Packed, head_dim: int) -> Floats:
        """The numbers [layers, 2, kv_heads, n, head_dim] that packed ones stand for.

        Raises `CodecRefused` for bytes that are none of this codec's.
        """
        layers, _, heads, tiles, _ = packed.shape
        parts = [
            codec.decode(rows, head_dim).reshape(layers, heads, tiles * TILE, head_dim)
            for codec, rows in self._parts(packed, head_dim)
        ]
        return np.stack(parts, axis=1)

    def check(self, packed: Packed, head_dim: int) -> None:
        """Raises `CodecRefused` for bytes whose numbers would not be finite."""
        for codec, rows in self._parts(packed, head_dim):
            codec.check(rows, head_dim)

    def keys_of(self, packed: Packed, head_dim: int) -> Packed:
        """The keys' bytes of packed tiles, not copied."""
        return packed[..., : self.keys.tile_bytes(head_dim)]

    def values_of(self, packed: Packed, head_dim: int) -> Packed:
        """The values' bytes of packed tiles, not copied."""
        return packed[..., self.keys.tile_bytes(head_dim) :]

    def _parts(self, packed: Packed, head_dim: int) -> tuple[tuple[Codec, Packed], ...]:
        """Keys, then values: what packs them, and their tiles [n, bytes]."""
        keys, values = self.keys_of(packed, head_dim), self.values_of(packed, head_dim)
        return (
            (self.keys, keys.reshape(-1, keys.shape[-1])),
            (self.values, values.reshape(-1, values.shape[-1])),
        )
