"""A short run of a long conversation, restored, between two real agents."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

import scripts.bench.long_conversation as long_conversation
from scripts.bench.long_conversation import Turn, by_tenth, questions


def test_every_answer_is_full_attentions_and_memory_is_flat(tmp_path: Path) -> None:
    target = tmp_path / "conversation.json"
    words = "--verifier tiny --turns 10 --tokens 8 --window 64 --dtype float32"
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


@pytest.mark.parametrize("count", [1, 9, 25, 200])
def test_turns_are_cut_into_tenths_whatever_their_number(count: int) -> None:
    turns = [Turn(float(n), (0,) * (n + 1), 1, n, n, n, n) for n in range(count)]
    tenths = by_tenth(turns)
    assert len(tenths) == min(10, count)
    assert tenths[-1]["history_tokens"] == count
    sizes = [tenth["history_tokens"] for tenth in tenths]
    assert max(b - a for a, b in pairwise([0, *sizes])) <= -(-count // len(tenths))
