"""A short run of a long conversation, restored, between two real agents."""

from __future__ import annotations

import json
from pathlib import Path

import scripts.bench.long_conversation as long_conversation
from scripts.bench.long_conversation import common_prefix, questions


def test_every_answer_is_full_attentions_and_memory_is_flat(tmp_path: Path) -> None:
    target = tmp_path / "conversation.json"
    words = "--verifier tiny --turns 10 --tokens 8 --window 64"
    assert long_conversation.main([*words.split(), "--out", str(target)]) == 0
    report = json.loads(target.read_text())
    assert report["answers_equal_to_full_attention"] == report["turns"] == 10
    assert report["first_that_differs"] is None
    tenths = report["tenths"]
    assert len(tenths) == 10
    # Well past the window, which alone is kept here.
    assert tenths[-1]["history_tokens"] > 3 * 64
    assert len({tenth["verifier_bytes"] for tenth in tenths}) == 1
    assert tenths[0]["archive_bytes"] < tenths[-1]["archive_bytes"]


def test_questions_are_the_seeds_and_begin_with_one_of_their_own() -> None:
    said = list(questions(200, 3))
    assert said == list(questions(200, 3)) != list(questions(200, 4))
    assert said[0] not in long_conversation.AGAIN
    again = sum(each in long_conversation.AGAIN for each in said)
    assert 30 < again < 90


def test_what_two_histories_begin_with() -> None:
    assert common_prefix((1, 2, 3), (1, 2, 4, 5)) == 2
    assert common_prefix((1, 2), (1, 2, 3)) == common_prefix((1, 2, 3), (1, 2)) == 2
    assert common_prefix((), (1,)) == 0
