"""How others round keys and values, by their own arithmetic: a round trip of the same tiles.

llama.cpp's cache types by the `gguf` package (blocks of 32 channels of a position), mlx-lm's
quantized cache by MLX itself (groups of 64 channels of a position), neither of which rotates here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

from kakeya_fleet.engine.codecs.known import CODECS
from kakeya_fleet.engine.codecs.tile import TILE, Codec

MLX_GROUP = 64


class Rounding(Protocol):
    """Takes tiles [n, 64, head_dim] there and back, and says how many bytes lay in between."""

    def __call__(self, tiles: np.ndarray, part: int) -> tuple[np.ndarray, int]:
        """`part` is 0 for keys and 1 for values."""
        ...


@dataclass(frozen=True)
class OwnRounding:
    """A codec of this engine."""

    keys: Codec
    values: Codec

    def __call__(self, tiles: np.ndarray, part: int) -> tuple[np.ndarray, int]:
        """See `Rounding`."""
        codec = self.values if part else self.keys
        packed = codec.encode(tiles)
        return codec.decode(packed, tiles.shape[-1]), packed.nbytes


@dataclass(frozen=True)
class LlamaRounding:
    """A cache type of llama.cpp, keys and values alike."""

    kind: GGMLQuantizationType

    def __call__(self, tiles: np.ndarray, part: int) -> tuple[np.ndarray, int]:
        """See `Rounding`."""
        del part
        packed = quantize(tiles, self.kind)
        return dequantize(packed, self.kind).reshape(tiles.shape), packed.nbytes


@dataclass(frozen=True)
class MlxRounding:
    """mlx-lm's `QuantizedKVCache`: scale and bias in the cache's own format, bfloat16."""

    bits: int

    def __call__(self, tiles: np.ndarray, part: int) -> tuple[np.ndarray, int]:
        """See `Rounding`."""
        del part
        numbers = mx.array(tiles.reshape(-1, tiles.shape[-1])).astype(mx.bfloat16)
        packed = mx.quantize(numbers, group_size=MLX_GROUP, bits=self.bits)
        back = mx.dequantize(*packed, group_size=MLX_GROUP, bits=self.bits)
        found = np.array(back.astype(mx.float32)).reshape(tiles.shape)
        return found, sum(each.nbytes for each in packed)


def roundings() -> Iterator[tuple[str, Rounding]]:
    """All that are compared, by name."""
    for name, codec in CODECS.items():
        yield name, OwnRounding(codec.keys, codec.values)
    for kind in (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0):
        assert TILE % GGML_QUANT_SIZES[kind][0] == 0
        yield f"llama.cpp {kind.name.lower()}", LlamaRounding(kind)
    for bits in (8, 4, 2):
        yield f"mlx-lm {bits} bits", MlxRounding(bits)
