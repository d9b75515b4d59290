"""What a report of sessions that choose their drafts says."""

import pytest

from scripts.bench.automatic_drafts import Answered, times_alone
from scripts.write.figures_automatic_drafts import noise, overall, times


def answered() -> Answered:
    speeds = {"alone": 10.0, "auto": 15.0, "alone again": 12.0}
    slower = {"alone": 10.0, "auto": 9.0, "alone again": 10.0}
    return [("0.0", "chat", speeds), ("0.0", "code", slower), ("0.7", "chat", slower)]


def test_it_is_measured_against_the_mean_time_of_both_answers_alone() -> None:
    found = times_alone(answered(), "0.0")
    assert found["chat"] == pytest.approx(15 * (1 / 10 + 1 / 12) / 2)
    assert found["least"] == pytest.approx(0.9)
    assert (found["below_the_floor"], found["answers"]) == (1, 2)
    assert found["alone_again"] == {"least": 1.0, "most": 1.2}


def test_what_documents_say_of_a_report() -> None:
    kinds = dict.fromkeys(("chat", "code", "lists", "rewriting", "summaries", "prose"), 1.5)
    each = {
        **kinds,
        "all": 1.5,
        "least": 0.75,
        "below_the_floor": 1,
        "answers": 12,
        "alone_again": {"least": 0.9, "most": 1.1},
    }
    found = {"rounds": [{"0.0": each, "0.7": each}] * 2, "answers_that_differ": 0}
    rows = times(found)
    assert len(rows) == 4
    assert rows[1] == "| greedy, round 2 | " + " | ".join(["1.50"] * 7) + " | 0.75 | 1 of 12 |"
    assert noise(found) == ["0.90", "1.10", "0"]
    better = {**each, "all": 2.5, "least": 0.95}
    found["rounds"] = [{"0.0": each, "0.7": better}, {"0.0": better, "0.7": better}]
    assert overall(found) == ["2.00", "0.75", "2.50", "0.95"]
