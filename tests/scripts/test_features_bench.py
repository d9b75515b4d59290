"""The benchmark of feature links: what it counts of a link, and a short run in real agents."""

import json
from pathlib import Path

import pytest

from scripts.bench.features import IN_PROCESS, Answer, Measured, main, over_in_process

ROOT = Path(__file__).resolve().parents[2]


def measured(*seconds: float, kind: str = "ring") -> Measured:
    return Measured(
        [Answer((1,) * 10, each, 2 * each, 10, 50, 5000, 7, kind, 2.5) for each in seconds]
    )


def test_figures_are_medians_of_answers_and_ratios_answer_by_answer() -> None:
    sides = {
        IN_PROCESS: measured(1.0, 4.0, 2.0, kind=IN_PROCESS).summary(),
        "ring": measured(2.0, 5.0, 8.0).summary(),
    }
    ring = sides["ring"]
    assert ring["tokens_per_second"]["median"] == 2.0
    assert ring["tokens_per_second_from_the_start"]["median"] == 2.0
    assert ring["bytes_a_token"] == 100
    assert ring["carried_by"] == {"ring": 3}
    assert over_in_process(sides)["ring"]["median"] == pytest.approx(0.5)


def test_a_short_run_says_the_same_tokens_and_counts_the_vectors(tmp_path: Path) -> None:
    target = tmp_path / "features.json"
    main(["--quick", "--kinds", "local", "--out", str(target)])
    report = json.loads(target.read_text())
    assert report["left_out"] == {}
    assert report["sides"]["local"]["carried_by"] == {"local": 1}
    config = json.loads((ROOT / "engine" / "shipped" / "tiny-dflash" / "config.json").read_text())
    vector = 2 * config["hidden_size"]
    # A vector a committed token, but of those that no draft has needed yet.
    assert 0 < report["sides"]["local"]["bytes_a_token"] <= vector
    assert report["sides"][IN_PROCESS]["bytes_a_token"] == 0
    assert report["tokens_identical"]
