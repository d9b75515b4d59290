"""Calibrations as files: what was written is read, what is damaged or foreign is refused."""

from __future__ import annotations

import io
import zipfile
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.codecs.calibration import BITS, Calibration
from kakeya_fleet.engine.codecs.calibration_file import read_calibration, write_calibration
from kakeya_fleet.engine.codecs.known import CODECS, codec_named
from kakeya_fleet.engine.codecs.refused import CalibrationRefused, CodecRefused
from tests.engine.codecs.test_codecs import tiles
from tests.support.breadth import again

if TYPE_CHECKING:
    from pathlib import Path

    from kakeya_fleet.engine.codecs.tile import Codec

DIGEST = "5f" * 32


def calibration(layers: int = 2, heads: int = 1, head_dim: int = 64, seed: int = 0) -> Calibration:
    """Random, for a model of one K/V head by default."""
    rng = np.random.default_rng(seed)
    levels = {
        bits: np.sort(rng.uniform(-1, 1, (layers, 2, 2**bits)).astype(np.float32)) for bits in BITS
    }
    edges = {
        bits: ((each[..., 1:] + each[..., :-1]) / 2).astype(np.float32)
        for bits, each in levels.items()
    }
    directions = rng.integers(-64, 64, (layers, heads, 8, head_dim)).astype(np.float32)
    return Calibration(
        DIGEST,
        directions,
        rng.standard_normal((layers, heads, head_dim)).astype(np.float32),
        rng.uniform(1, 5, (layers, heads, head_dim)).astype(np.float32),
        (1e5 ** -(np.arange(0, head_dim, 2) / head_dim)).astype(np.float32),
        edges,
        levels,
    )


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 64), (3, 80)])
def test_what_is_read_packs_to_the_same_bytes(tmp_path: Path, heads: int, head_dim: int) -> None:
    made = calibration(heads=heads, head_dim=head_dim)
    write_calibration(tmp_path / "made" / "one.npz", made)
    found = read_calibration(tmp_path / "made" / "one.npz", DIGEST)
    assert (found.layers, found.kv_heads) == (2, heads)
    asked = tiles(2, head_dim)
    for bits in BITS:
        for layer in range(2):
            pairs: list[tuple[Codec, Codec]] = [
                (made.kvquant_values(bits, layer), found.kvquant_values(bits, layer))
            ]
            for head in range(heads):
                pairs += [
                    (made.squat(bits, layer, head), found.squat(bits, layer, head)),
                    (made.kvquant_keys(bits, layer, head), found.kvquant_keys(bits, layer, head)),
                ]
            for own, read in pairs:
                assert own.encode(asked).tobytes() == read.encode(asked).tobytes()


def test_its_codecs_are_none_that_sessions_choose_and_kivi_unpacks_squat() -> None:
    squat = calibration().squat(3, layer=1, head=0)
    asked = tiles(2, 64)
    packed = squat.encode(asked)
    expected = squat.decode(packed, 64)
    assert codec_named("kivi3").keys.decode(packed, 64).tobytes() == expected.tobytes()
    assert not {"squat3", "kvquant3"} & set(CODECS)


def spoiled(**changes: Any) -> Any:
    return pytest.param(changes, id="-".join(changes))


ONES = np.ones((2, 1, 64), np.float32)


@pytest.mark.parametrize(
    "changes",
    [
        spoiled(model_digest="smollm2"),
        spoiled(middles=ONES * np.nan),
        spoiled(middles=ONES * 1e6),
        spoiled(middles=ONES[:1]),
        spoiled(reaches=ONES * 0),
        spoiled(reaches=-ONES),
        spoiled(reaches=ONES.astype(np.float64)),
        spoiled(directions=ONES),
        spoiled(directions=np.ones((2, 1, 0, 64), np.float32)),
        spoiled(directions=np.full((2, 1, 8, 64), np.inf, np.float32)),
        spoiled(frequencies=np.full(32, 2, np.float32)),
        spoiled(frequencies=np.ones(31, np.float32)),
        spoiled(edges={}),
        spoiled(levels={bits: np.ones((2, 2, 2**bits + 1), np.float32) for bits in BITS}),
        spoiled(levels={bits: np.full((2, 2, 2**bits), 5, np.float32) for bits in BITS}),
    ],
)
def test_a_calibration_of_nonsense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(CalibrationRefused, match="make it anew"):
        replace(calibration(), **changes)


def test_files_of_another_model_or_version_and_none_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "one.npz"
    with pytest.raises(CalibrationRefused, match=r"has no calibration; make it anew: python -m"):
        read_calibration(file, DIGEST)
    write_calibration(file, calibration())
    with pytest.raises(CalibrationRefused, match="of another model"):
        read_calibration(file, "ab" * 32)
    content = changed(file.read_bytes(), "version.npy", lambda held: held[:-8] + b"\x02" + bytes(7))
    file.write_bytes(content)
    with pytest.raises(CalibrationRefused, match="another version"):
        read_calibration(file, DIGEST)


def changed(content: bytes, name: str, change: Any, compress: int = zipfile.ZIP_STORED) -> bytes:
    """The zip with one member changed, its check sums right."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w", compress) as new:
        for member in old.namelist():
            held = old.read(member)
            new.writestr(member, change(held) if member == name else held)
    return made.getvalue()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"(2, 1, 64)", b"(2,1,6400)"),
        (b"(2, 1, 64)", b"(9, 9, 99)"),
        (b"'<f4'", b"'|O4'"),
        (b"'<f4'", b"'>f4'"),
        (b"'<f4'", b"'<f8'"),
        (b"False", b" True"),
        (b"(2, 1, 64)", b"[2, 1, 64]"),
        (b"\x93NUMPY\x01", b"\x93NUMPY\x03"),
        (b"{'descr'", b"(((((((("),
    ],
)
def test_arrays_that_lie_are_refused(tmp_path: Path, old: bytes, new: bytes) -> None:
    file = tmp_path / "one.npz"
    write_calibration(file, calibration())
    content = changed(file.read_bytes(), "middles.npy", lambda held: held.replace(old, new, 1))
    assert content != file.read_bytes()
    file.write_bytes(content)
    with pytest.raises(CalibrationRefused, match="no calibration: middles"):
        read_calibration(file, DIGEST)


def test_archives_that_are_none_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "one.npz"
    write_calibration(file, calibration())
    good = file.read_bytes()
    packed = changed(good, "", None, zipfile.ZIP_DEFLATED)
    more = io.BytesIO(good)
    with zipfile.ZipFile(more, "a") as archive:
        archive.writestr("more.npy", b"")
    for content in (b"", b"PK", good[:-30], packed, more.getvalue()):
        file.write_bytes(content)
        with pytest.raises(CalibrationRefused, match="is no calibration"):
            read_calibration(file, DIGEST)


@again(4)
@settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32 - 1), cut=st.booleans())
def test_damaged_files_are_refused_or_whole(tmp_path: Path, seed: int, *, cut: bool) -> None:
    note(f"seed {seed}")
    rng = np.random.default_rng(seed)
    file = tmp_path / "one.npz"
    write_calibration(file, calibration())
    content = bytearray(file.read_bytes())
    for place in rng.integers(0, len(content), 3):
        # Half of them at the end, where zip has its directory.
        where = int(place) if rng.integers(2) else len(content) - 1 - int(place) % 1200
        content[where] ^= int(rng.integers(1, 256))
    file.write_bytes(content[: int(rng.integers(len(content)))] if cut else content)
    with suppress(CodecRefused):
        read_calibration(file, DIGEST)
