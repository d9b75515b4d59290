"""Short runs of what measures packed keys and values, with the shipped model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import scripts.bench.packed_archives as packed_archives
import scripts.bench.packed_full as packed_full
import scripts.bench.packing as packing
import scripts.eval.codec_layers as codec_layers
import scripts.eval.codec_tiers as codec_tiers
import scripts.eval.packed_quality as packed_quality
from kakeya_fleet.fleet.placement.codec_ladder import LADDER


def test_a_full_session_is_measured_with_each_quality(tmp_path: Path) -> None:
    out = tmp_path / "full.json"
    words = "--model tiny --contexts 256 --prompt 256 --steps 2 --rounds 1"
    packed_full.main([*words.split(), "--out", str(out)])
    assert all(f'"{side}": ' in out.read_text() for side in ("full", "high", "economy"))


def test_archives_are_measured_beside_a_full_session(tmp_path: Path) -> None:
    out = tmp_path / "archives.json"
    words = "--model tiny --contexts 256 --window 64 --answer 4 --rounds 1"
    packed_archives.main([*words.split(), "--out", str(out)])
    assert "kvarn3" in out.read_text()


def test_packing_is_timed_by_each_codec_of_the_ladder(tmp_path: Path) -> None:
    out = tmp_path / "packing.json"
    assert packing.main(["--positions", "64", "--rounds", "1", "--out", str(out)]) == 0
    of_one = json.loads(out.read_text())["milliseconds_of_threads"]["1"]
    assert tuple(of_one) == LADDER
    assert {side for own in of_one.values() for side in own} == {
        *("pack", "unpack", "memory", "pack_numpy", "unpack_numpy")
    }


def test_what_packing_moves_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "quality.json"
    words = "--model tiny --tokens 192 --needles 1 --needle-tokens 192"
    assert packed_quality.main([*words.split(), "--out", str(out)]) == 0
    assert "kvarn4" in out.read_text()


def test_tiers_by_age_are_measured(tmp_path: Path) -> None:
    out = tmp_path / "tiers.json"
    ways = ("kvarn4 behind 64, kvarn2 behind 512", "kvarn2 behind 512", "kvarn2 behind 64")
    words = ["--model", "tiny", "--tokens", "1100", "--ways", ";".join(ways), "--out", str(out)]
    assert codec_tiers.main(words) == 0
    found = json.loads(out.read_text())["of_ways"]
    moved = [found[way]["divergence_nats"] for way in ways]
    assert 0.0 < moved[1] < moved[2]
    bits = [found[way]["bits_a_value"]["2048"] for way in ways]
    assert bits[2] < bits[0] < bits[1]


def test_bits_are_those_of_each_position_once() -> None:
    tiers = codec_tiers.WAYS["kvarn4 behind 64, kvarn3 behind 512"]
    bits = codec_tiers.bits_at(tiers, 64 + 64 + 448 + 512)
    assert bits == pytest.approx((64 * 16 + 448 * 4.75 + 512 * 3.75) / 1024)
    assert codec_tiers.bits_at(tiers, 64 + 32) == 16.0


def test_layers_with_codecs_of_their_own_are_measured(tmp_path: Path) -> None:
    out = tmp_path / "layers.json"
    words = ["--model", "tiny", "--tokens", "256", "--pairs", "1", "--chosen", "1"]
    assert codec_layers.main([*words, "--out", str(out)]) == 0
    found = json.loads(out.read_text())["of_pairs"]["kvarn4, kvarn3"]["of_ways"]
    bits = {name: own["bits_a_value"] for name, own in found.items()}
    fine, coarse = bits["kvarn4 for all"], bits["kvarn3 for all"]
    assert bits["kvarn4 for the sensitive keys and values"] == pytest.approx((fine + coarse) / 2)
    assert bits["kvarn4 for the most sensitive quarter"] == pytest.approx((fine + 3 * coarse) / 4)


def test_what_moves_most_has_the_finer_codec() -> None:
    moved = {(0, 0): 4.0, (0, 1): 1.0, (1, 0): 2.0, (1, 1): 2.5}
    found = codec_layers.assignments(moved, 2, "fine", "coarse")
    assert found["fine for the sensitive layers"] == {
        (0, 0): "fine",
        (0, 1): "fine",
        (1, 0): "coarse",
        (1, 1): "coarse",
    }
    parts = found["fine for the sensitive keys and values"]
    assert {part for part, name in parts.items() if name == "fine"} == {(0, 0), (1, 1)}
    assert set(found["fine for all"].values()) == {"fine"}
