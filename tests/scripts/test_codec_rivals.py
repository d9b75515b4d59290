"""Others' roundings of keys and values: the bits that they say, the error that these stand for."""

from collections.abc import Iterator

import numpy as np
import pytest

from scripts.eval.codec_rivals import INSTALLED_BY, Rounding, own_roundings, rival_roundings
from tests.engine.codecs.test_codecs import tiles

BITS = {
    "llama.cpp q8_0": 8.5,
    "llama.cpp q4_0": 4.5,
    "mlx-lm 8 bits": 8.5,
    "mlx-lm 4 bits": 4.5,
    "mlx-lm 2 bits": 2.5,
    "transformers hqq 8 bits": 8.5,
    "transformers hqq 4 bits": 4.5,
    "transformers hqq 2 bits": 2.5,
    "transformers quanto 4 bits": 4.5,
    "transformers quanto 2 bits": 2.5,
    "kakeyalattice d4-4": 4.5,
    "kakeyalattice d4-3": 3.5,
    "kakeyalattice d4-2": 2.75,
    "kakeyalattice e8-4": 4.625,
    "kakeyalattice e8-3": 3.75,
    "kakeyalattice e8-2": 2.875,
}


def rivals() -> Iterator[object]:
    """Those that are installed, but for one that compiles for minutes when it is first used."""
    for name, rounding in rival_roundings():
        if "quanto" not in name:
            yield pytest.param(name, rounding, id=name)


@pytest.mark.parametrize(("name", "rounding"), list(rivals()))
def test_a_rival_has_the_bits_and_the_error_of_its_kind(name: str, rounding: Rounding) -> None:
    asked = np.random.default_rng(1).standard_normal((3, 64, 64)).astype(np.float32)
    found, nbytes = rounding(asked, 0, 64)
    assert found.dtype == np.float32
    assert found.shape == asked.shape
    assert 8 * nbytes / asked.size == BITS[name]
    error = np.sqrt(np.square(found - asked).mean() / np.square(asked).mean())
    assert error < 4 / 2 ** int(BITS[name])


@pytest.mark.parametrize("bits", [4, 3, 2])
def test_points_of_d4_are_those_of_the_package(bits: int) -> None:
    """Nearly all: it rotates by a product, whose sums have no fixed order."""
    asked = tiles(3, 64)
    sides = {**dict(own_roundings()), **dict(rival_roundings())}
    own, _ = sides[f"d4-{bits}"](asked, 0, 64)
    theirs, _ = sides[f"kakeyalattice d4-{bits}"](asked, 0, 64)
    assert np.isclose(own, theirs, rtol=1e-3, atol=1e-2).mean() > 0.99


def test_a_missing_library_is_told_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    names = [name for name, _ in rival_roundings()]
    assert not any("transformers" in name for name in names)
    said = capsys.readouterr().out
    for command in INSTALLED_BY.values():
        assert command in said
