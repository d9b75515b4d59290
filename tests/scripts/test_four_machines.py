"""Init, invite, join by short codes, an application with a key, and one member put out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.eval.four_machines import PERIOD_SECONDS
from scripts.faults.machines import what_is_missing

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing())
@pytest.mark.timeout(240)
def test_a_member_is_put_out_in_mid_stream_and_no_token_is_lost(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    # Its process stays in the network namespace that it makes.
    words = [sys.executable, "-m", "scripts.eval.four_machines", "--out", str(out)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    assert report["same_tokens"]
    assert report["accepted"] > 0
    assert report["resumptions"] == 0
    # Two periods on a quiet machine, as the report says; this one may be busy.
    assert report["gone_after_begin_seconds"] < 10 * PERIOD_SECONDS
    # By the keeper that its own node suspects; by that node, once it holds the keeper for dead.
    assert report["refused_afterwards"] in ("BAD_CERTIFICATE", "MODEL_NOT_FOUND")
