"""How others round keys and values, by their own arithmetic: a round trip of the same tiles.

llama.cpp's cache types by the `gguf` package (blocks of 32 channels of a position), mlx-lm's
quantized cache by MLX itself and transformers' `QuantizedCache` by its own layers (groups of 64
channels of a position), none of which rotates here; and the package `kakeyalattice`, which does.
What transformers' layers compute with is no part of `make setup`, as it compiles or brings much
along; where it is missing, its rows are left out by name.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx
import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from kakeyalattice import V14KakeyaZamirLatticeGPU, V15KakeyaZamirE8GPU
from transformers.cache_utils import HQQQuantizedLayer, QuantizedLayer, QuantoQuantizedLayer

from kakeya_fleet.engine.codecs.known import CODECS
from kakeya_fleet.engine.codecs.tile import TILE, Codec

MLX_GROUP = 64
TRANSFORMERS_GROUP = 64
INSTALLED_BY = {
    "hqq": "DISABLE_CUDA=1 pip install --no-deps hqq==0.2.8.post1 termcolor",
    "optimum.quanto": "pip install --no-deps optimum-quanto==0.2.7 ninja",
}
"""Without what else they would bring along: neither needs it for this."""


class Rounding(Protocol):
    """Takes tiles [n, 64, head_dim] there and back, and says how many bytes lay in between."""

    def __call__(self, tiles: np.ndarray, part: int, first: int) -> tuple[np.ndarray, int]:
        """`part` is 0 for keys and 1 for values; `first` the tiles' first position.

        They are those of a position, head by head and layer by layer.
        """
        ...


@dataclass(frozen=True)
class OwnRounding:
    """A codec of this engine."""

    keys: Codec
    values: Codec

    def __call__(self, tiles: np.ndarray, part: int, first: int) -> tuple[np.ndarray, int]:
        """See `Rounding`."""
        del first
        codec = self.values if part else self.keys
        packed = codec.encode(tiles)
        return codec.decode(packed, tiles.shape[-1]), packed.nbytes


@dataclass(frozen=True)
class LlamaRounding:
    """A cache type of llama.cpp, keys and values alike."""

    kind: GGMLQuantizationType

    def __call__(self, tiles: np.ndarray, part: int, first: int) -> tuple[np.ndarray, int]:
        """See `Rounding`."""
        del part, first
        packed = quantize(tiles, self.kind)
        return dequantize(packed, self.kind).reshape(tiles.shape), packed.nbytes


@dataclass(frozen=True)
class MlxRounding:
    """mlx-lm's `QuantizedKVCache`: scale and bias in the cache's own format, bfloat16."""

    bits: int

    def __call__(self, tiles: np.ndarray, part: int, first: int) -> tuple[np.ndarray, int]:
        """See `Rounding`."""
        del part, first
        numbers = mx.array(tiles.reshape(-1, tiles.shape[-1])).astype(mx.bfloat16)
        packed = mx.quantize(numbers, group_size=MLX_GROUP, bits=self.bits)
        back = mx.dequantize(*packed, group_size=MLX_GROUP, bits=self.bits)
        found = np.array(back.astype(mx.float32)).reshape(tiles.shape)
        return found, sum(each.nbytes for each in packed)


@dataclass(frozen=True)
class TransformersRounding:
    """transformers' `QuantizedCache`, groups of channels of a position, in bfloat16.

    `axis` is what the library behind `layer` calls these groups. HQQ fits the zeros of all tiles
    of a call together.
    """

    layer: type[QuantizedLayer]
    bits: int
    axis: int

    def __call__(self, tiles: np.ndarray, part: int, first: int) -> tuple[np.ndarray, int]:
        """See `Rounding`."""
        del part, first
        layer = self.layer(
            nbits=self.bits,
            axis_key=self.axis,
            axis_value=self.axis,
            q_group_size=TRANSFORMERS_GROUP,
            residual_length=2 * TILE,
        )
        numbers = torch.from_numpy(tiles)[None].to(torch.bfloat16)
        layer.update(numbers, numbers)
        # It comes back rounded with the positions that are next, of which there are none.
        back, _ = layer.update(numbers[:, :, :0], numbers[:, :, :0])
        # The levels, and scale and zero of a group in the cache's format.
        nbytes = tiles.size * self.bits // 8 + tiles.size // TRANSFORMERS_GROUP * 2 * 2
        return back[0].float().numpy(), nbytes


@dataclass(frozen=True)
class KakeyaLatticeRounding:
    """The package's round trip, and the bits that it says it has."""

    codec: type[V14KakeyaZamirLatticeGPU] | type[V15KakeyaZamirE8GPU]
    reach: int

    def __call__(self, tiles: np.ndarray, part: int, first: int) -> tuple[np.ndarray, int]:
        """See `Rounding`."""
        del part, first
        codec = self.codec(D=tiles.shape[-1], q_range=self.reach, device="cpu")
        back = codec.roundtrip(torch.from_numpy(tiles)).numpy()
        return back, tiles.shape[0] * TILE * codec.bits_per_token_per_head // 8


def own_roundings() -> Iterator[tuple[str, Rounding]]:
    """The codecs that sessions may name."""
    for name, codec in CODECS.items():
        yield name, OwnRounding(codec.keys, codec.values)


def rival_roundings() -> Iterator[tuple[str, Rounding]]:
    """Others', by name."""
    for kind in (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0):
        assert TILE % GGML_QUANT_SIZES[kind][0] == 0
        yield f"llama.cpp {kind.name.lower()}", LlamaRounding(kind)
    for bits in (8, 4, 2):
        yield f"mlx-lm {bits} bits", MlxRounding(bits)
    yield from _transformers("hqq", HQQQuantizedLayer, 1, (8, 4, 2))
    yield from _transformers("optimum.quanto", QuantoQuantizedLayer, 0, (4, 2))
    # The reaches of this engine's own rows `d4` and `e8`.
    for reach, bits in ((8, 4), (4, 3), (2, 2)):
        yield f"kakeyalattice d4-{bits}", KakeyaLatticeRounding(V14KakeyaZamirLatticeGPU, reach)
        yield f"kakeyalattice e8-{bits}", KakeyaLatticeRounding(V15KakeyaZamirE8GPU, reach)


def _transformers(
    package: str, layer: type[QuantizedLayer], axis: int, each_bits: tuple[int, ...]
) -> Iterator[tuple[str, Rounding]]:
    """Rows of one library, or a line that says how to install it."""
    name = package.split(".")[-1]
    if importlib.util.find_spec(package.split(".", maxsplit=1)[0]) is None:
        print(f"without transformers {name}: {INSTALLED_BY[package]}", flush=True)
        return
    for bits in each_bits:
        yield f"transformers {name} {bits} bits", TransformersRounding(layer, bits, axis)
