"""The benchmark of a drafted block runs, and says what it says it does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.bench import drafted_block


def test_figures_are_of_each_context_and_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafted_block, "READ_BYTES", 1 << 12)
    report = tmp_path / "report.json"
    words = "--drafter tiny-dflash --target tiny --dtype float32 --block 3 --rounds 2 --out"
    assert drafted_block.main([*words.split(), str(report)]) == 0
    written, said = json.loads(report.read_text()), json.loads(capsys.readouterr().out)
    assert said.items() <= written.items()
    assert sorted(map(int, said["block_milliseconds"])) == sorted(drafted_block.CONTEXTS)
    for by_side in said["encoder_milliseconds"].values():
        assert sorted(by_side) == ["numpy", "own"]
        assert all(0.0 < side["fastest"] <= side["median"] for side in by_side.values())
