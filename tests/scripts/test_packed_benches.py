"""Short runs of what measures packed keys and values, with the shipped model."""

from __future__ import annotations

from pathlib import Path

import scripts.bench.packed_archives as packed_archives
import scripts.bench.packed_full as packed_full
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
