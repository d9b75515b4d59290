"""The stages against the arithmetic of those who published them, written anew in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from kakeya_fleet.engine.codecs.balance import balanced
from kakeya_fleet.engine.codecs.bit_planes import packed_planes, unpacked_planes
from kakeya_fleet.engine.codecs.hadamard import rotated, rotation_block
from kakeya_fleet.engine.codecs.known import codec_named
from tests.engine.codecs.test_codecs import tiles

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.tile import Floats


def kivi(numbers: torch.Tensor, bits: int, group: int, dim: int) -> torch.Tensor:
    """Min-max rounding of groups along a dimension, scale and minimum in half precision."""
    moved = numbers.transpose(dim, -1)
    cut = moved.reshape(*moved.shape[:-1], -1, group)
    least, most = cut.amin(-1, keepdim=True), cut.amax(-1, keepdim=True)
    scale = ((most - least) / (2**bits - 1)).half().float()
    zero = least.half().float()
    levels = ((cut - zero) / scale).round().clamp(0, 2**bits - 1)
    found: torch.Tensor = (levels * scale + zero).reshape(moved.shape).transpose(dim, -1)
    return found


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_kivi_is_that_of_its_authors(bits: int) -> None:
    """arXiv 2402.02750, algorithm 1: keys along tokens, values along channels."""
    asked = tiles(5, 128, seed=3)
    codec = codec_named(f"kivi{bits}")
    for side, dim in ((codec.keys, 1), (codec.values, 2)):
        found = side.decode(side.encode(asked), 128)
        assert found.tobytes() == kivi(torch.from_numpy(asked), bits, 32, dim).numpy().tobytes()


@pytest.mark.parametrize("bits", [4, 8])
def test_int_is_min_max_behind_a_rotation(bits: int) -> None:
    asked = tiles(5, 128, seed=4)
    codec = codec_named(f"int{bits}").keys
    turned = kivi(torch.from_numpy(rotated(asked)), bits, 64, 2).numpy()
    assert codec.decode(codec.encode(asked), 128).tobytes() == rotated(turned).tobytes()


def hadamard(size: int) -> Floats:
    """Sylvester's construction."""
    found = np.ones((1, 1))
    while len(found) < size:
        found = np.block([[found, found], [found, -found]])
    scaled: Floats = (found / np.sqrt(size)).astype(np.float32)
    return scaled


@pytest.mark.parametrize(
    ("head_dim", "block"), [(64, 64), (80, 16), (96, 32), (112, 16), (128, 128), (256, 256)]
)
def test_rotation_is_hadamards_in_the_largest_blocks_and_its_own_inverse(
    head_dim: int, block: int
) -> None:
    asked = tiles(2, head_dim, seed=5)
    assert rotation_block(head_dim) == block
    matrix = np.kron(np.eye(head_dim // block), hadamard(block))
    np.testing.assert_allclose(rotated(asked), asked @ matrix, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(rotated(rotated(asked)), asked, rtol=1e-5, atol=1e-5)


def test_balanced_rows_and_columns_are_nearly_alike() -> None:
    rng = np.random.default_rng(6)
    spread_rows = np.exp(rng.standard_normal((3, 64, 1)))
    spread_columns = np.exp(rng.standard_normal((3, 1, 96)))
    asked = (rng.standard_normal((3, 64, 96)) * spread_rows * spread_columns).astype(np.float32)
    rows, columns = balanced(asked)
    assert rows.shape == (3, 64, 1)
    assert columns.shape == (3, 1, 96)

    def ratio(numbers: np.ndarray) -> float:
        deviations = np.concatenate((numbers.std(axis=1), numbers.std(axis=2)), axis=1)
        return float((deviations.max(axis=1) / deviations.min(axis=1)).max())

    assert ratio(asked) > 50
    assert ratio(asked / (rows * columns)) < 2


def test_balance_pays_where_positions_differ() -> None:
    """KVarN's reason: tokens of other sizes share the grids of a channel."""
    asked = tiles(4, 64, seed=7)
    asked[:, ::9] *= 16
    errors = []
    for name in ("kivi3", "kvarn3"):
        codec = codec_named(name).keys
        found = codec.decode(codec.encode(asked), 64)
        quiet = np.ones(64, bool)
        quiet[::9] = False
        errors.append(float(np.square(found - asked)[:, quiet].mean()))
    assert errors[1] < errors[0] / 4


@pytest.mark.parametrize("bits", range(1, 9))
def test_planes_hold_every_level(bits: int) -> None:
    rng = np.random.default_rng(bits)
    levels = rng.integers(0, 1 << bits, (3, 256), np.uint8)
    packed = packed_planes(levels, bits)
    assert packed.nbytes == 3 * 256 * bits // 8
    assert unpacked_planes(packed, bits).tobytes() == levels.tobytes()
