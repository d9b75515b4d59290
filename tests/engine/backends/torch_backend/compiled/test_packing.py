"""Tiles that the compiled library packs and unpacks: the bits of the codecs themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.backends.torch_backend.compiled import library as libraries
from kakeya_fleet.engine.backends.torch_backend.compiled import packing
from kakeya_fleet.engine.codecs.known import CODECS
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import Codec, Floats, Packed
from kakeya_fleet.engine.contracts.raw_numbers import as_float32, in_format
from tests.support.breadth import all_wide_but

SEED = 20_261_126
GRIDS = sorted(name for name in CODECS if name.startswith(("int", "kivi", "kvarn")))


HEAD_DIMS = (16, 96, 112, 128)
CASES = [(width, size, name) for width in (4, 2) for size in HEAD_DIMS for name in GRIDS]
"""Bytes of a number, sizes of heads, codecs."""
# Each codec once, and each size of heads with both dtypes.
KEPT = {((4, 2)[place // 4 % 2], HEAD_DIMS[place % 4], name) for place, name in enumerate(GRIDS)}
EACH = pytest.mark.parametrize(
    ("width", "head_dim", "name"), all_wide_but(KEPT.__contains__, CASES, several=True)
)


def tiles_of(head_dim: int, tiles: int) -> Floats:
    """Tiles with channels that stand out, one of them of equal numbers, one of zeros."""
    rng = np.random.default_rng(SEED)
    numbers = rng.standard_normal((tiles, 64, head_dim), np.float32)
    numbers *= np.exp(2 * rng.standard_normal((tiles, 1, head_dim))).astype(np.float32)
    numbers[1], numbers[2] = 3.25, 0.0
    return numbers


def packed(codec: Codec, head_dim: int, tiles: int = 3) -> Packed:
    return codec.encode(tiles_of(head_dim, tiles))


@EACH
def test_the_numbers_are_those_of_the_codec(
    processors: dict[str, libraries.Library],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    head_dim: int,
    width: int,
) -> None:
    dtype = torch.bfloat16 if width == 2 else torch.float32
    for codec in (CODECS[name].keys, CODECS[name].values):
        tiles = packed(codec, head_dim)
        expected = torch.from_numpy(codec.decode(tiles, head_dim)).to(dtype)
        for options, found in processors.items():
            monkeypatch.setattr(packing, "library", lambda found=found: found)
            numbers = packing.compiled_unpack(codec, tiles, head_dim, dtype)
            if numbers is None:
                # Grids of 64 numbers are made smaller where heads are no multiple of it.
                assert head_dim == 112
                continue
            assert torch.equal(numbers, expected), options


@EACH
def test_the_bytes_are_those_of_the_codec(
    processors: dict[str, libraries.Library],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    head_dim: int,
    width: int,
) -> None:
    numbers = in_format(tiles_of(head_dim, 3), "bfloat16" if width == 2 else "float32")
    for codec in (CODECS[name].keys, CODECS[name].values):
        expected = codec.encode(as_float32(numbers))
        for options, found in processors.items():
            monkeypatch.setattr(packing, "library", lambda found=found: found)
            tiles = packing.compiled_pack(codec, numbers)
            if tiles is None:
                assert head_dim == 112
                continue
            assert tiles.tobytes() == expected.tobytes(), options


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from(GRIDS),
    seed=st.integers(0, 2**32 - 1),
    exponents=st.tuples(st.integers(-30, 12), st.integers(0, 12)),
    zeros=st.floats(0, 1),
)
def test_whatever_is_packed_is_packed_alike(
    name: str, seed: int, exponents: tuple[int, int], zeros: float
) -> None:
    """Numbers of all sizes, zeros of both signs, and rows and columns of nothing else."""
    if libraries.library() is None:
        pytest.skip("there is no compiled decoder here")
    rng = np.random.default_rng(seed)
    low, more = exponents
    numbers = rng.standard_normal((2, 64, 32), np.float32)
    numbers *= np.exp2(rng.integers(low, low + more + 1, numbers.shape)).astype(np.float32)
    numbers[rng.random(numbers.shape) < zeros] *= np.float32(0)
    numbers[0, 5], numbers[1, :, 7] = 0.0, -0.0
    for codec in (CODECS[name].keys, CODECS[name].values):
        try:
            expected = codec.encode(numbers)
        except CodecRefused as refused:
            with pytest.raises(CodecRefused, match=str(refused)):
                packing.compiled_pack(codec, numbers)
            continue
        found = packing.compiled_pack(codec, numbers)
        assert found is not None
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("number", "words"), [(np.inf, "not finite"), (np.nan, "not finite"), (3e6, "beyond 65,504")]
)
def test_what_the_codec_refuses_is_refused(number: float, words: str) -> None:
    if libraries.library() is None:
        pytest.skip("there is no compiled decoder here")
    numbers = tiles_of(64, 3)
    numbers[2, 63, 1] = number
    for name in ("int4", "kivi4"):
        codec = CODECS[name].values
        for pack in (packing.compiled_pack, lambda each, tiles: each.encode(tiles)):
            with pytest.raises(CodecRefused, match=words):
                pack(codec, numbers)


def test_any_bytes_whose_scales_are_finite_are_unpacked_alike() -> None:
    if libraries.library() is None:
        pytest.skip("there is no compiled decoder here")
    rng = np.random.default_rng(SEED)
    for name in GRIDS:
        codec = CODECS[name].keys
        tiles = rng.integers(0, 256, (40, codec.tile_bytes(64)), np.uint8)
        scales = tiles[:, 64 * 64 * int(name[-1]) // 8 :].view(np.float16)
        # Subnormal ones and zeros of both signs among them.
        scales[~np.isfinite(scales)] = 2.0**-20
        scales[:, ::7] *= np.float16(2.0**-12)
        scales[:, ::11] = -0.0
        numbers = packing.compiled_unpack(codec, tiles, 64, torch.float32)
        assert numbers is not None
        assert numbers.numpy().tobytes() == codec.decode(tiles, 64).tobytes(), name


def test_neither_company_nor_strides_nor_threads_change_a_bit() -> None:
    if libraries.library() is None:
        pytest.skip("there is no compiled decoder here")
    codec = CODECS["kvarn4"].keys
    # Enough for two threads.
    tiles = packed(codec, 128, tiles=2 * packing.NUMBERS_UNPACKED_A_THREAD // (64 * 128))
    whole = packing.compiled_unpack(codec, tiles, 128, torch.bfloat16)
    assert whole is not None
    beside = np.concatenate([tiles, tiles[:, :9]], axis=1)[:, : tiles.shape[1]]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        strided = packing.compiled_unpack(codec, beside, 128, torch.bfloat16)
    finally:
        torch.set_num_threads(threads)
    assert strided is not None
    assert torch.equal(strided, whole)
    for index in (0, 1, 32):
        alone = packing.compiled_unpack(codec, tiles[index : index + 1], 128, torch.bfloat16)
        assert alone is not None
        assert torch.equal(alone[0], whole[index])


def test_what_it_does_not_know_is_the_codecs_own() -> None:
    tiles = packed(CODECS["e8-3"].keys, 64)
    assert packing.compiled_unpack(CODECS["e8-3"].keys, tiles, 64, torch.float32) is None
    kivi = CODECS["kivi4"].values
    assert packing.compiled_unpack(kivi, packed(kivi, 72), 72, torch.float32) is None


def test_tiles_of_another_size_are_refused() -> None:
    if libraries.library() is None:
        pytest.skip("there is no compiled decoder here")
    codec = CODECS["kvarn3"].values
    with pytest.raises(CodecRefused, match="no tiles"):
        packing.compiled_unpack(codec, packed(codec, 64)[:, :-1], 64, torch.float32)
