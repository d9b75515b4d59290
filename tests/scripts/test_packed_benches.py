"""Short runs of what measures packed keys and values, with the shipped model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import scripts.bench.packed_archives as packed_archives
import scripts.bench.packed_full as packed_full
import scripts.eval.codec_tiers as codec_tiers
import scripts.eval.packed_quality as packed_quality


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
