"""A short run of what compares memory on paper with memory that was taken."""

from __future__ import annotations

import json
from pathlib import Path

import scripts.bench.fitted_memory as fitted_memory


def test_what_was_said_is_told_beside_what_was_taken(tmp_path: Path) -> None:
    out = tmp_path / "memory.json"
    words = ["--models", "tiny", "--sides", "auto", "--context", "128", "--out", str(out)]
    assert fitted_memory.main(words) == 0
    told = json.loads(out.read_text())["models"]["tiny"]["auto"]
    assert told["weight_bytes"] < told["loading_bytes"]
    taken = told["taken"]
    assert 0 < taken["loaded"] <= taken["loading"]
    assert taken["loaded"] < taken["session"]


def test_what_operators_keep_of_every_number_of_rows_is_said(tmp_path: Path) -> None:
    """A model of few megabytes: kernels are most of what it takes."""
    out = tmp_path / "memory.json"
    words = ["--models", "tiny", "--sides", "operators", "--context", "128", "--out", str(out)]
    assert fitted_memory.main(words) == 0
    told = json.loads(out.read_text())["models"]["tiny"]["operators"]
    assert told["session_bytes"] >= told["taken"]["session"]
    assert told["checking_bytes"] >= told["taken"]["checking"]
