"""KVQuant: levels of a table, outliers as they are, keys without the turns of their positions."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from kakeya_fleet.engine.codecs.fixed_turns import sines_and_cosines
from kakeya_fleet.engine.codecs.level_table import LevelTable
from kakeya_fleet.engine.codecs.outliers import slots
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.rotary import Rotary
from kakeya_fleet.engine.codecs.table_codec import KeyTableCodec, ValueTableCodec
from kakeya_fleet.engine.codecs.tile import TILE, Codec, bits_a_value
from tests.engine.codecs.test_codecs import tiles

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.tile import Floats

HEADS = (64, 80, 96, 112, 128)
BITS = (4, 3, 2)


def table(bits: int) -> LevelTable:
    """Levels that are closer where numbers are many."""
    levels = np.linspace(-1, 1, 2**bits) ** 3 * 0.4 + np.linspace(-1, 1, 2**bits) * 0.5
    edges = (levels[:-1] + levels[1:]) / 2
    return LevelTable(edges.astype(np.float32), levels.astype(np.float32))


def keys_codec(bits: int, head_dim: int) -> KeyTableCodec:
    """Ranges of `tiles`: every 17th channel is twelve times as large."""
    reaches = np.full(head_dim, 3.0, np.float32)
    reaches[::17] *= 12
    middles = np.linspace(-0.1, 0.1, head_dim).astype(np.float32)
    return KeyTableCodec(f"kvquant{bits}", table(bits), middles, reaches)


def codec_of(part: str, bits: int, head_dim: int) -> Codec:
    if part == "keys":
        return keys_codec(bits, head_dim)
    return ValueTableCodec(f"kvquant{bits}", table(bits))


both = pytest.mark.parametrize("part", ["keys", "values"])


def authors(asked: Floats, part: str, bits: int, head_dim: int) -> np.ndarray:
    """Section 3 of arXiv 2401.18079 in float64, one number after the other.

    The nearest level of the table in the range of the channel or position; of all numbers the
    hundredth that is the furthest away stays as it is, in half precision.
    """
    wide = asked.astype(np.float64)
    codec = keys_codec(bits, head_dim)
    levels = table(bits).levels.astype(np.float64)
    found = np.empty_like(wide)
    for index, tile in enumerate(wide):
        if part == "keys":
            distance = np.abs((tile - codec.middles) / codec.reaches)
        else:
            distance = np.abs(tile - tile.mean(axis=1, keepdims=True)) / tile.std(axis=1)[:, None]
        count = int(np.ceil(tile.size / 100))
        kept = np.zeros(tile.size, bool)
        kept[np.argsort(-distance.ravel(), kind="stable")[:count]] = True
        kept = kept.reshape(tile.shape)
        for position in range(TILE):
            dense = tile[position][~kept[position]]
            for channel in range(head_dim):
                number = tile[position, channel]
                if kept[position, channel]:
                    found[index, position, channel] = np.float16(number)
                    continue
                if part == "keys":
                    middle, reach = codec.middles[channel], codec.reaches[channel]
                else:
                    middle = float(np.float16((dense.min() + dense.max()) / 2))
                    reach = float(np.float16((dense.max() - dense.min()) / 2))
                level = levels[np.abs((number - middle) / reach - levels).argmin()]
                found[index, position, channel] = level * reach + middle
    return found


@both
@pytest.mark.parametrize("bits", BITS)
def test_it_is_that_of_its_authors(part: str, bits: int) -> None:
    asked = tiles(2, 64, seed=1)
    codec = codec_of(part, bits, 64)
    found = codec.decode(codec.encode(asked), 64)
    same = np.isclose(found, authors(asked, part, bits, 64), rtol=1e-5, atol=1e-5).mean()
    # A number at an edge may fall to either side.
    assert same > 0.999


@both
@pytest.mark.parametrize("head_dim", HEADS)
def test_more_bits_less_error_in_the_bytes_that_are_told(part: str, head_dim: int) -> None:
    asked = tiles(3, head_dim, seed=2)
    errors = []
    for bits in BITS:
        codec = codec_of(part, bits, head_dim)
        packed = codec.encode(asked)
        assert packed.shape == (3, codec.tile_bytes(head_dim))
        found = codec.decode(packed, head_dim)
        errors.append(float(np.square(found - asked).mean()))
    assert errors[0] < errors[1] / 1.5 < errors[2] / 3


def test_bits_are_told_with_outliers_and_ranges() -> None:
    # 41 outliers of 32 bits in 4,096 numbers; a position's middle and reach of 16 bits each.
    assert bits_a_value(codec_of("keys", 4, 64), 64) == 4 + 41 * 32 / 4096
    assert bits_a_value(codec_of("values", 2, 64), 64) == 2 + 41 * 32 / 4096 + 32 / 64


@both
def test_planted_outliers_stay_as_float16(part: str) -> None:
    asked = np.random.default_rng(3).standard_normal((2, TILE, 64)).astype(np.float32)
    rng = np.random.default_rng(4)
    places = rng.choice(TILE * 64, slots(64), replace=False)
    planted = (rng.uniform(300, 60_000, len(places)) * rng.choice([-1, 1], len(places))).astype(
        np.float32
    )
    if part == "values":
        # Of a position, so that none hides another behind a large deviation.
        places = np.arange(slots(64)) * 64 + places % 64
    asked.reshape(2, -1)[1, places] = planted
    codec = codec_of(part, 2, 64)
    found = codec.decode(codec.encode(asked), 64).reshape(2, -1)[1, places]
    assert np.array_equal(found, planted.astype(np.float16).astype(np.float32))


@both
@pytest.mark.parametrize("value", [0.0, 1.0, -3.5])
def test_equal_numbers_stay_equal(part: str, value: float) -> None:
    asked = np.full((2, TILE, 80), value, np.float32)
    codec = codec_of(part, 4, 80)
    found = codec.decode(codec.encode(asked), 80)
    if part == "values":
        assert np.array_equal(found, asked)
    else:
        # Within half a step of the largest channels' range.
        assert np.abs(found - asked).max() < 36 * 0.16


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    bits=st.sampled_from(BITS),
    part=st.sampled_from(("keys", "values")),
)
def test_the_bits_of_a_tile_know_nothing_of_its_company(seed: int, bits: int, part: str) -> None:
    note(f"seed {seed}")
    asked = tiles(5, 64, seed)
    asked[1] = 0.0
    asked[2] = 3.5
    asked[3, :, ::5] *= 64
    codec = codec_of(part, bits, 64)
    together = codec.encode(asked)
    for index in range(5):
        assert codec.encode(asked[index : index + 1]).tobytes() == together[index].tobytes()
    strided = np.asarray(asked.swapaxes(1, 2).copy().swapaxes(1, 2))
    assert codec.encode(strided).tobytes() == together.tobytes()
    alone = [codec.decode(together[index : index + 1], 64) for index in range(5)]
    assert np.concatenate(alone).tobytes() == codec.decode(together, 64).tobytes()


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    part=st.sampled_from(("keys", "values")),
    flips=st.integers(1, 64),
)
def test_foreign_bytes_are_refused_or_finite(seed: int, part: str, flips: int) -> None:
    note(f"seed {seed}")
    rng = np.random.default_rng(seed)
    codec = codec_of(part, 3, 64)
    packed = codec.encode(tiles(2, 64, seed))
    packed.reshape(-1)[rng.integers(0, packed.size, flips)] ^= np.uint8(rng.integers(1, 256))
    with suppress(CodecRefused):
        assert np.isfinite(codec.decode(packed, 64)).all()
    with suppress(CodecRefused):
        codec.check(packed, 64)
        codec.decode(packed, 64)


@both
def test_hostile_tiles_are_refused(part: str) -> None:
    codec = codec_of(part, 4, 64)
    good = codec.encode(tiles(1, 64))
    with pytest.raises(CodecRefused, match="no tiles"):
        codec.check(good[:, :-1], 64)
    infinite = good.copy()
    infinite[0, -2:] = (0x00, 0x7C)
    with pytest.raises(CodecRefused, match="not finite"):
        codec.check(infinite, 64)
    begin = good.shape[1] - 4 * slots(64)
    twice, beyond = good.copy(), good.copy()
    twice[0, begin + 2 : begin + 4] = twice[0, begin : begin + 2]
    beyond[0, begin + 2 * slots(64) - 2 : begin + 2 * slots(64)] = 0xFF
    for hostile in (twice, beyond):
        with pytest.raises(CodecRefused, match="places"):
            codec.check(hostile, 64)
    if part == "values":
        ranges = good.copy()
        ranges[0, TILE * 64 // 2 : TILE * 64 // 2 + 2] = (0x00, 0x7E)
        with pytest.raises(CodecRefused, match="ranges that are not finite"):
            codec.check(ranges, 64)


@both
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 70_000.0])
def test_numbers_that_no_outlier_holds_are_refused(part: str, value: float) -> None:
    asked = tiles(2, 64)
    asked[1, 5, 7] = value
    with pytest.raises(CodecRefused, match="not finite" if not np.isfinite(value) else "beyond"):
        codec_of(part, 4, 64).encode(asked)


def test_heads_of_other_sizes_are_refused() -> None:
    with pytest.raises(CodecRefused, match="calibrated for heads of 64 channels, not of 80"):
        keys_codec(4, 64).encode(tiles(1, 80))
    with pytest.raises(CodecRefused, match="1024 is the most"):
        ValueTableCodec("kvquant4", table(4)).tile_bytes(1028)


@pytest.mark.parametrize(
    ("edges", "levels"),
    [
        (np.zeros(3), np.array([0, 0, 0, np.nan])),
        (np.zeros(3), np.array([0, 1, 0, 1])),
        (np.zeros(4), np.zeros(4)),
        (np.zeros(3), np.array([0, 0, 0, 5.0])),
        (np.zeros(4), np.zeros(5)),
    ],
)
def test_tables_that_are_none_are_refused(edges: np.ndarray, levels: np.ndarray) -> None:
    with pytest.raises(CodecRefused, match="table"):
        LevelTable(edges.astype(np.float32), levels.astype(np.float32))


def rotary(head_dim: int) -> Rotary:
    return Rotary((1e5 ** -(np.arange(0, head_dim, 2) / head_dim)).astype(np.float32))


@pytest.mark.parametrize("head_dim", HEADS)
def test_positions_turn_keys_as_the_model_turns_them_and_back(head_dim: int) -> None:
    config = LlamaConfig(
        hidden_size=head_dim,
        num_attention_heads=1,
        head_dim=head_dim,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
    )
    embedding = LlamaRotaryEmbedding(config)
    asked, firsts = tiles(3, head_dim, seed=5), np.array([0, 640, 7680])
    for tile, first in zip(asked, firsts, strict=True):
        keys = torch.from_numpy(tile)[None, None]
        angles = embedding(keys, torch.arange(first, first + TILE)[None])
        _, expected = apply_rotary_pos_emb(keys, keys, *angles)
        own = Rotary(embedding.inv_freq.numpy())
        found = own.turned(tile[None], np.array([first]))
        np.testing.assert_allclose(found[0], expected[0, 0].numpy(), rtol=1e-4, atol=1e-4)
    turned = rotary(head_dim).turned(asked, firsts)
    np.testing.assert_allclose(
        rotary(head_dim).turned_back(turned, firsts), asked, rtol=1e-5, atol=1e-5
    )
    alone = rotary(head_dim).turned(asked[1:2], firsts[1:2])
    assert alone.tobytes() == turned[1:2].tobytes()


@pytest.mark.parametrize("firsts", [[1], [-64], [1 << 24], [0, 64], []])
def test_positions_that_are_no_tiles_are_refused(firsts: list[int]) -> None:
    with pytest.raises(CodecRefused, match="position"):
        rotary(64).turned(tiles(1, 64), np.array(firsts, np.int64))
    with pytest.raises(CodecRefused, match="heads of 64"):
        rotary(64).turned(tiles(1, 80), np.array([0]))


@settings(max_examples=200)
@given(st.floats(-(2.0**24), 2.0**24))
def test_sines_are_sines(angle: float) -> None:
    sines, cosines = sines_and_cosines(np.array([angle]))
    assert abs(sines[0] - np.sin(angle)) < 1e-8
    assert abs(cosines[0] - np.cos(angle)) < 1e-8
