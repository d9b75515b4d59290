"""That what measures experts runs, and finds what it is to find."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scripts.bench import experts


def test_a_short_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "experts.json"
    sizes = ["--experts", "6", "--hidden", "64", "--inner", "32", "--chosen", "2", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["experts", *sizes, "--threads", "1", "--out", str(out)])
    experts.main()
    found = json.loads(out.read_text())["found"]
    assert set(found) == {"bfloat16", "float32"}
    for own in found.values():
        assert {rows: set(sides) for rows, sides in own["milliseconds"].items()} == {
            str(rows): {"eager", "grouped_mm", "exact"} for rows in experts.ROWS
        }
        assert own[f"of {experts.ALONE} rows company changes"]["exact"] == 0
