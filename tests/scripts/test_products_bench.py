"""The benchmark of products of few rows: a short run, and what documents say of it."""

import json
from pathlib import Path

import pytest

from kakeya_fleet.engine.backends.torch_backend.compiled.library import library
from scripts.bench.products import READING, ROWS, main
from scripts.write.figures_products import SIDES, products, speeds


@pytest.mark.skipif(library() is None, reason="no compiled decoder")
def test_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.json"
    sizes = ["--inputs", "64", "--outputs", "96", "--rounds", "2"]
    assert main([*sizes, "--out", str(out)]) == 0
    found = json.loads(out.read_bytes())
    assert {*found["milliseconds"]} >= {READING, "float32", "bfloat16", "int8", "int4"}
    for by_rows in found["milliseconds"].values():
        assert [*by_rows] == [str(rows) for rows in ROWS]
        assert min(by_rows.values()) > 0.0
    assert found["weight_bytes"]["float32"] == 2 * found["weight_bytes"]["bfloat16"] == 64 * 96 * 4
    assert len(products(found)) == len([name for name in SIDES if name in found["milliseconds"]])
    assert len(speeds(found)) == 5
    assert "int4: 1: " in capsys.readouterr().out
