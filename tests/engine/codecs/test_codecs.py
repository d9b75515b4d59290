"""Every codec, by its contract: bytes are counted, tiles know no company, lies are refused."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.codecs.known import CODECS, codec_named
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import TILE, Codec, bits_a_value
from tests.support.breadth import again, all_wide_but

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.tile import Floats

SIDES = [
    pytest.param(codec, id=f"{name}-{side}")
    for name, kv in CODECS.items()
    for side, codec in (("keys", kv.keys), ("values", kv.values))
    # Those whose values have fewer bits are made of others' sides.
    if codec.name == name
]
every_codec = pytest.mark.parametrize("codec", SIDES)
HEADS = (8, 64, 80, 96, 112, 128, 256)


def as_bfloat16(numbers: Floats) -> Floats:
    bits = np.ascontiguousarray(numbers).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def tiles(count: int, head_dim: int, seed: int = 0) -> Floats:
    """Numbers as keys have them: a few channels are far larger than the others."""
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal((count, TILE, head_dim)).astype(np.float32)
    numbers[:, :, ::17] *= 12
    return as_bfloat16(numbers)


@every_codec
@pytest.mark.parametrize("head_dim", all_wide_but([8, 80, 128], HEADS))
def test_a_tile_has_the_bytes_that_are_told_and_comes_back_near_itself(
    codec: Codec, head_dim: int
) -> None:
    asked = tiles(3, head_dim)
    packed = codec.encode(asked)
    assert packed.dtype == np.uint8
    assert packed.shape == (3, codec.tile_bytes(head_dim))
    found = codec.decode(packed, head_dim)
    assert found.dtype == np.float32
    assert found.shape == asked.shape
    error = np.sqrt(np.square(found - asked).mean() / np.square(asked).mean())
    # Levels over +-4 deviations: the error falls by half with every bit that is no scale's.
    assert error < 8 / 2 ** int(bits_a_value(codec, 256))


@every_codec
def test_the_bits_of_a_tile_know_nothing_of_its_company(codec: Codec) -> None:
    asked = tiles(7, 64)
    # Of all kinds, so that what is best for one is not for the others.
    asked[1] = 0.0
    asked[2, ::5] *= 64
    asked[3, :, ::3] *= 64
    asked[4, 10] *= 256
    asked = as_bfloat16(asked)
    together = codec.encode(asked)
    for index in range(7):
        assert codec.encode(asked[index : index + 1]).tobytes() == together[index].tobytes()
    order = [3, 0, 6, 2]
    assert codec.encode(np.ascontiguousarray(asked[order])).tobytes() == together[order].tobytes()
    numbers = codec.decode(together, 64)
    alone = [codec.decode(together[index : index + 1], 64) for index in range(7)]
    assert np.concatenate(alone).tobytes() == numbers.tobytes()
    # As it lies in a cache: a view with other strides.
    strided = np.asarray(asked.swapaxes(1, 2).copy().swapaxes(1, 2))
    assert codec.encode(strided).tobytes() == together.tobytes()


@every_codec
@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e-30])
def test_equal_numbers_stay_equal(codec: Codec, value: float) -> None:
    asked = as_bfloat16(np.full((2, TILE, 64), value, np.float32))
    found = codec.decode(codec.encode(asked), 64)
    # Rotated, equal numbers are one channel that has all: the half precision of its scale is
    # the error of all others alike, and comes back as one.
    share = 2e-2 if getattr(codec, "rotates", False) else 2e-3
    assert np.abs(found - asked).max() <= max(share * abs(value), 1e-6)


@every_codec
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_numbers_that_are_not_finite_are_refused(codec: Codec, value: float) -> None:
    asked = tiles(2, 64)
    asked[1, 5, 7] = value
    with pytest.raises(CodecRefused, match="not finite"):
        codec.encode(asked)


@every_codec
def test_shapes_that_are_no_tiles_are_refused(codec: Codec) -> None:
    for shape in ((64, 64), (1, 63, 64), (1, 64, 64, 1)):
        with pytest.raises(CodecRefused, match="no tiles"):
            codec.encode(np.zeros(shape, np.float32))
    with pytest.raises(CodecRefused, match="no tiles"):
        codec.encode(np.zeros((1, TILE, 64), np.float64))
    packed = codec.encode(tiles(1, 64))
    for wrong in (packed[:, :-1], packed[0]):
        with pytest.raises(CodecRefused, match="no tiles"):
            codec.decode(wrong, 64)


@again(3)
@every_codec
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 2**32 - 1))
def test_foreign_bytes_are_refused_or_finite(codec: Codec, seed: int) -> None:
    rng = np.random.default_rng(seed)
    packed = rng.integers(0, 256, (2, codec.tile_bytes(64)), np.uint8)
    with suppress(CodecRefused):
        assert np.isfinite(codec.decode(packed, 64)).all()


@every_codec
def test_a_scale_that_is_not_finite_is_refused(codec: Codec) -> None:
    packed = codec.encode(tiles(2, 64))
    packed[1, -2:] = (0x80, 0x7F) if codec.name == "lossless" else (0x00, 0x7C)
    with pytest.raises(CodecRefused, match="not finite"):
        codec.decode(packed, 64)


@pytest.mark.parametrize("name", [name for name in CODECS if name != "lossless"])
def test_numbers_beyond_the_scales_are_refused(name: str) -> None:
    asked = tiles(1, 64)
    asked[0, 3, 3] = 3e38
    for codec in (codec_named(name).keys, codec_named(name).values):
        with pytest.raises(CodecRefused):
            codec.encode(asked)


def test_lossless_is_bit_for_bit_and_refuses_what_is_no_bfloat16() -> None:
    codec = codec_named("lossless").keys
    asked = tiles(4, 80)
    assert codec.decode(codec.encode(asked), 80).tobytes() == asked.tobytes()
    asked[0, 0, 0] = np.float32(0.1)
    with pytest.raises(CodecRefused, match="lossy"):
        codec.encode(asked)


def test_a_codec_that_rotates_says_which_heads_it_cannot_take() -> None:
    with pytest.raises(CodecRefused, match="heads of 100 channels"):
        codec_named("int4").keys.encode(tiles(1, 100))
    assert codec_named("kivi4").keys.tile_bytes(100)


def test_names_that_are_unknown_are_told_with_those_that_there_are() -> None:
    with pytest.raises(CodecRefused, match=r"'fp8'; there are lossless, int8, int4, kivi4"):
        codec_named("fp8")


@pytest.mark.parametrize(
    ("name", "keys", "values"),
    [
        ("lossless", 16, 16),
        ("int8", 8.5, 8.5),
        ("int4", 4.5, 4.5),
        ("kivi4", 5, 5),
        ("kivi3", 4, 4),
        ("kivi2", 3, 3),
        # Of a head of 128: 32 bits a grid of 64, and 16 a factor of 128; 32 of 128, and 16 of 64.
        ("kvarn4", 4.625, 4.5),
        ("kvarn4v3", 4.625, 3.5),
        ("kvarn3", 3.625, 3.5),
        ("kvarn3v2", 3.625, 2.5),
        ("kvarn2", 2.625, 2.5),
        # 32 bits a position of 128, and as many a block as its points need.
        ("d4-4", 4.25, 4.25),
        ("d4-2", 2.5, 2.5),
        ("e8-4", 4.375, 4.375),
        ("e8-2", 2.625, 2.625),
    ],
)
def test_bits_are_told_with_all_scales(name: str, keys: float, values: float) -> None:
    codec = codec_named(name)
    assert bits_a_value(codec.keys, 128) == keys
    assert bits_a_value(codec.values, 128) == values
