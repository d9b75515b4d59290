"""Drafts behind long histories: what is told of what was measured."""

from scripts.bench.long_history_drafts import told_of
from scripts.write.figures_long_history import HEAD, differing, rows


def test_a_side_is_compared_answer_by_answer() -> None:
    cell = {
        "alone": {"speed": [10.0, 20.0, 40.0, 10.0], "forward": [1.0, 1.0, 1.0, 1.0]},
        "auto": {"speed": [20.0, 10.0, 60.0, 12.0], "forward": [2.0, 3.0, 4.0, 3.0]},
    }
    told = told_of(cell)
    assert told["alone"]["times_alone"] == told["alone"]["times_alone_least"] == 1.0
    assert told["auto"] == {
        "tokens_per_second": 16.0,
        "tokens_a_forward": 3.0,
        "times_alone": 1.35,
        # Of the second prompt, whose answers are the second and the fourth.
        "times_alone_least_prompt": 0.85,
        "times_alone_least": 0.5,
    }


def test_what_documents_say_of_a_report() -> None:
    side = {
        "tokens_per_second": 12.34,
        "tokens_a_forward": 2.0,
        "times_alone": 1.5,
        "times_alone_least_prompt": 1.25,
        "times_alone_least": 0.987,
    }
    cell = {"sessions": "full", "history_tokens": 2863, "temperature": 0.7, "sides": {"auto": side}}
    report = {"cells": [cell], "answers_that_differ": 0}
    assert rows(report) == ["| full, 2,863 tokens | 0.7 | auto | 12.3 | 2.0 | 1.50 | 1.25 | 0.99 |"]
    assert rows(report)[0].count("|") == HEAD.count("|")
    assert differing(report) == ["0"]
