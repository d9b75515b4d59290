"""Points of D4 and E8: nearest, numbered, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from kakeya_fleet.engine.codecs.hadamard import rotated
from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.codecs.lattices import Lattice, d4, e8
from tests.engine.codecs.test_codecs import tiles

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.tile import Floats


def every_point(lattice: Lattice) -> Floats:
    """All whose numbers there are, of those that are none cut off."""
    side = 2 * lattice.reach + 1
    count = (1 + lattice.has_halves) * (lattice.reach + 1) * side ** (lattice.size - 1)
    assert 1 << (lattice.bits - 1) < count <= 1 << lattice.bits
    points = lattice.points(np.arange(count, dtype=np.uint64))
    return points[(np.abs(points) <= lattice.reach).all(axis=1)]


@pytest.mark.parametrize(("lattice", "halves"), [(d4(2), False), (d4(3), False), (e8(1), True)])
def test_numbers_are_of_points_of_the_lattice_each_once(lattice: Lattice, halves: bool) -> None:
    points = every_point(lattice)
    assert len(np.unique(points, axis=0)) == len(points)
    assert ((points.sum(axis=1) % 2) == 0).all()
    whole = (points % 1 == 0).all(axis=1)
    assert (whole | (points % 1 == 0.5).all(axis=1)).all()
    assert (~whole).any() == halves
    # Of the whole vectors of the cube one more has an even sum than an odd one.
    odd_one = (-1) ** (lattice.reach * lattice.size)
    assert whole.sum() == ((2 * lattice.reach + 1) ** lattice.size + odd_one) // 2


@pytest.mark.parametrize("lattice", [d4(2), d4(3), e8(2)], ids=["d4 2", "d4 3", "e8 2"])
def test_the_nearest_point_is_the_nearest_of_all(lattice: Lattice) -> None:
    rng = np.random.default_rng(lattice.size)
    vectors = rng.uniform(1 - lattice.reach, lattice.reach - 1, (40, lattice.size))
    whole, half = lattice.nearest(np.asarray(vectors, np.float32))
    found = whole + half[:, None].astype(np.float32) / 2
    points = every_point(lattice)
    for vector, point in zip(vectors, found, strict=True):
        least = np.square(points - vector).sum(axis=1).min()
        assert np.square(point - vector).sum() == pytest.approx(least, abs=1e-5)


@pytest.mark.parametrize("lattice", [d4(2), d4(8), e8(2), e8(8), e8(117)])
def test_points_come_back_from_their_numbers_at_the_edges_too(lattice: Lattice) -> None:
    rng = np.random.default_rng(lattice.reach)
    vectors = rng.uniform(-lattice.reach, lattice.reach, (500, lattice.size)).astype(np.float32)
    vectors[::3, 0] = lattice.reach
    vectors[1::3, -1] = -lattice.reach
    whole, half = lattice.nearest(vectors)
    numbers = lattice.numbers(whole, half)
    assert int(numbers.max()) < 1 << lattice.bits
    found = whole + half[:, None].astype(np.float32) / 2
    assert np.abs(found).max() <= lattice.reach
    assert lattice.points(numbers).tobytes() == found.tobytes()


def round_trip(numbers: torch.Tensor, reach: int) -> torch.Tensor:
    """KakeyaLattice's of D4: unit norm, rotated, by the largest channel, both in half precision."""
    norms = numbers.norm(dim=-1, keepdim=True)
    unit = torch.from_numpy(rotated((numbers / norms).numpy()))
    scale = unit.abs().amax(-1, keepdim=True).half().float() / reach
    blocks = (unit / scale).reshape(*unit.shape[:-1], -1, 4)
    rounded = blocks.round()
    error = blocks - rounded
    furthest = error.abs().argmax(-1, keepdim=True)
    step = torch.where(error.gather(-1, furthest) >= 0, 1.0, -1.0)
    other = rounded.scatter_add(-1, furthest, step)
    odd = rounded.sum(-1, keepdim=True) % 2 != 0
    points = torch.where(odd, other, rounded).clamp(-reach, reach).reshape(unit.shape)
    turned = torch.from_numpy(rotated((points * scale).numpy()))
    found: torch.Tensor = turned * norms.half().float()
    return found


@pytest.mark.parametrize(("name", "reach"), [("d4-4", 8), ("d4-3", 4), ("d4-2", 2)])
def test_d4_gives_the_numbers_of_the_published_round_trip(name: str, reach: int) -> None:
    asked = tiles(6, 128, seed=8)
    codec = codec_named(name).keys
    found = codec.decode(codec.encode(asked), 128)
    published = round_trip(torch.from_numpy(asked), reach).numpy()
    # A sum in another order moves a number across a border once in a long while.
    assert (np.abs(found - published) > 1e-4).mean() < 1e-3


def test_more_dimensions_lose_less_at_equal_bits() -> None:
    asked = np.random.default_rng(9).standard_normal((4, 64, 128)).astype(np.float32)
    errors = {}
    for name in ("d4-4", "e8-4"):
        codec = codec_named(name).keys
        errors[name] = float(np.square(codec.decode(codec.encode(asked), 128) - asked).mean())
    assert errors["e8-4"] < errors["d4-4"]
