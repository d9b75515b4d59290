"""The soak: what its buckets and sittings sum to, what a drifted probe is, and a short sitting."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scripts.bench import soak_agent, soak_sessions
from scripts.bench.soak_agent import KINDS, PLANS, differing
from scripts.bench.soak_tally import Tally, totals

ROOT = Path(__file__).resolve().parents[2]


def bucket(
    turns: int,
    seconds: float = 600.0,
    *,
    failures: dict[str, int] | None = None,
    differed: Sequence[str] = (),
    whole: bool = True,
) -> dict[str, Any]:
    tally = Tally()
    for index in range(turns):
        tally.turn("full", 5, 20, 0.1 + 0.001 * index)
    tally.failures.update(failures or {})
    told = tally.summary(seconds)
    held = {"node_resident_bytes": 1000 + turns, "node_open_files": 20}
    return told | held | {"whole": whole, "probe": {"answers": 6, "differed": list(differed)}}


def test_a_bucket_tells_turns_and_their_percentiles() -> None:
    told = bucket(100)
    assert (told["turns"], told["turns_by_kind"]) == (100, {"full": 100})
    assert told["turn_seconds_p50"] == pytest.approx(0.150)
    assert told["turn_seconds_p99"] == pytest.approx(0.199)
    assert told["generated_tokens_per_second"] == pytest.approx(2000 / 600)
    # A bucket in which every turn failed is a bucket.
    assert "turn_seconds_p50" not in bucket(0, failures={"DRAINING": 3})


def test_a_report_says_how_long_in_all_and_how_long_at_most() -> None:
    first = {"buckets": [bucket(10), bucket(20, failures={"SESSION_NOT_FOUND": 2})]}
    second = {
        "buckets": [
            bucket(30, differed=["full auto"]),
            bucket(40, failures={"SESSION_NOT_FOUND": 1, "DRAINING": 1}),
            bucket(50),
            bucket(1, 60.0, whole=False),
        ]
    }
    told = totals([first, second])
    assert (told["sittings"], told["turns"]) == (2, 151)
    assert told["hours"] == pytest.approx(3060 / 3600)
    assert told["longest_sitting_hours"] == pytest.approx(1860 / 3600)
    assert told["failures"] == {"DRAINING": 1, "SESSION_NOT_FOUND": 3}
    assert (told["probes"], told["probes_that_differed"]) == (36, 1)
    # The cut bucket at the end is not compared with a whole one.
    drift = told["last_over_first_bucket"][1]
    assert drift["node_resident_bytes"] == pytest.approx(1050 / 1030)


def test_a_probe_drifts_from_the_first_answer_or_with_the_drafter() -> None:
    first = {f"{kind} {plan}": kind for kind in KINDS for plan in PLANS}
    assert differing(first, first) == []
    assert differing(first | {"full off": "other"}, first) == ["full auto", "full off"]
    both = first | {"restored auto": "other", "restored off": "other"}
    assert differing(both, first) == ["restored auto", "restored off"]


def test_a_sitting_is_added_to_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_agent, "PROBE_TOKENS", 8)
    # A ring that is tried takes two processes.
    monkeypatch.setenv("KAKEYA_LINKS", "grpc")
    path = tmp_path / "soak.json"
    before = {"buckets": [bucket(3)], "started_at": "before"}
    path.write_text(json.dumps({"what": "kept", "sittings": [before]}))
    words = ["--hours", "0.0002", "--bucket-seconds", "0.4", "--applications", "3"]
    soak_sessions.main([*words, "--pause-seconds", "0.05", "--continue", str(path)])
    report = json.loads(path.read_text())
    assert (report["what"], report["sittings"][0]) == ("kept", before)
    sitting = report["sittings"][1]
    assert sitting["ended"] == "hours"
    assert report["totals"]["sittings"] == 2
    assert report["totals"]["failures"] == {}
    assert sitting["buckets"]
    for each in sitting["buckets"]:
        assert each["probe"] == {"answers": 6, "differed": []}
        assert each["node_resident_bytes"] > 0
    assert report["totals"]["turns"] == 3 + sum(each["turns"] for each in sitting["buckets"])
