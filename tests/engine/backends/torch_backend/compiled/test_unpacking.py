"""Tiles that the compiled library unpacks: the bits of the codecs' own decoding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kakeya_fleet.engine.backends.torch_backend.compiled import library as libraries
from kakeya_fleet.engine.backends.torch_backend.compiled import unpacking
from kakeya_fleet.engine.codecs.known import CODECS
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import Codec, Packed

SEED = 20_261_126
GRIDS = sorted(name for name in CODECS if name.startswith(("int", "kivi", "kvarn")))


def packed(codec: Codec, head_dim: int, tiles: int = 3) -> Packed:
    """Tiles with channels that stand out, one of them of equal numbers, one of zeros."""
    rng = np.random.default_rng(SEED)
    numbers = rng.standard_normal((tiles, 64, head_dim), np.float32)
    numbers *= np.exp(2 * rng.standard_normal((tiles, 1, head_dim))).astype(np.float32)
    numbers[1], numbers[2] = 3.25, 0.0
    return codec.encode(numbers)


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("head_dim", [16, 96, 112, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_numbers_are_those_of_the_codec(
    processors: dict[str, libraries.Library],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    head_dim: int,
    dtype: torch.dtype,
) -> None:
    for codec in (CODECS[name].keys, CODECS[name].values):
        tiles = packed(codec, head_dim)
        expected = torch.from_numpy(codec.decode(tiles, head_dim)).to(dtype)
        for options, found in processors.items():
            monkeypatch.setattr(unpacking, "library", lambda found=found: found)
            numbers = unpacking.compiled_unpack(codec, tiles, head_dim, dtype)
            if numbers is None:
                # Grids of 64 numbers are made smaller where heads are no multiple of it.
                assert head_dim == 112
                continue
            assert torch.equal(numbers, expected), options


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
        numbers = unpacking.compiled_unpack(codec, tiles, 64, torch.float32)
        assert numbers is not None
        assert numbers.numpy().tobytes() == codec.decode(tiles, 64).tobytes(), name


def test_neither_company_nor_strides_nor_threads_change_a_bit() -> None:
    if libraries.library() is None:
        pytest.skip("there is no compiled decoder here")
    codec = CODECS["kvarn4"].keys
    tiles = packed(codec, 128, tiles=33)
    whole = unpacking.compiled_unpack(codec, tiles, 128, torch.bfloat16)
    assert whole is not None
    beside = np.concatenate([tiles, tiles[:, :9]], axis=1)[:, : tiles.shape[1]]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        strided = unpacking.compiled_unpack(codec, beside, 128, torch.bfloat16)
    finally:
        torch.set_num_threads(threads)
    assert strided is not None
    assert torch.equal(strided, whole)
    for index in (0, 1, 32):
        alone = unpacking.compiled_unpack(codec, tiles[index : index + 1], 128, torch.bfloat16)
        assert alone is not None
        assert torch.equal(alone[0], whole[index])


def test_what_it_does_not_know_is_the_codecs_own() -> None:
    tiles = packed(CODECS["e8-3"].keys, 64)
    assert unpacking.compiled_unpack(CODECS["e8-3"].keys, tiles, 64, torch.float32) is None
    kivi = CODECS["kivi4"].values
    assert unpacking.compiled_unpack(kivi, packed(kivi, 72), 72, torch.float32) is None


def test_tiles_of_another_size_are_refused() -> None:
    if libraries.library() is None:
        pytest.skip("there is no compiled decoder here")
    codec = CODECS["kvarn3"].values
    with pytest.raises(CodecRefused, match="no tiles"):
        unpacking.compiled_unpack(codec, packed(codec, 64)[:, :-1], 64, torch.float32)
