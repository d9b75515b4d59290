"""Where a step attends: which cells share processes, what the verdict says, and a short run."""

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.bench.attend import Cell, Place, cells, main, together, verdict
from scripts.bench.attend_session import Shape, Way

SHAPE = Shape("archive", layers=2, kv_heads=2, groups=2, head_dim=16, context=256)


def test_cells_share_processes_unless_shape_network_or_sessions_differ() -> None:
    places = [Place(), Place(busy=True), Place("a wire"), Place(sessions=3)]
    found = [Cell(SHAPE, place, rows) for place in places for rows in (1, 64)]
    assert [len(group) for group in together(found)] == [4, 2, 2]
    measured = cells(["a wire"])
    assert sum(map(len, together(measured))) == len(measured) == len(set(measured))


def test_the_verdict_parts_loopback_from_networks() -> None:
    def cell(network: str, rows: int, ratio: float) -> dict[str, Any]:
        ways = {Way.VERIFIER: {"speed_over_archive": {"median": ratio}}}
        return {"network": network, "rows": rows, "ways": ways}

    found = verdict([cell("loopback", 1, 2.0), cell("a", 1, 0.5), cell("b", 1, 1.5)])
    assert found == {
        "1 over loopback": {"least": 2.0, "most": 2.0, "ahead": 1, "cells": 1},
        "1 over networks": {"least": 0.5, "most": 1.5, "ahead": 1, "cells": 2},
    }


def test_a_short_run_measures_both_ways(tmp_path: Path) -> None:
    target = tmp_path / "attend.json"
    main(["--quick", "--no-networks", "--rounds", "1", "--out", str(target)])
    report = json.loads(target.read_text())
    assert report["networks_left_out"] == "not asked for"
    assert [cell["rows"] for cell in report["cells"]] == [1, 64]
    for found in report["cells"]:
        there = found["ways"][Way.ARCHIVE]
        assert there["step_seconds"]["median"] > 0
        assert there["speed_over_archive"]["median"] == pytest.approx(1.0)
    assert report["verdict"]["1 over loopback"]["cells"] == 1
