from __future__ import annotations

import asyncio

import pytest

from scripts.bench.crowded_drafts import answered, told
from scripts.write.figures_crowded import below, differing, rows


def test_as_many_answer_at_once_as_are_asked_for() -> None:
    most = now = 0

    async def answer(prompt: list[int]) -> tuple[float, list[int], dict[str, object]]:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return 1.0, prompt * 2, {}

    prompts = [[index] for index in range(7)]
    speed, said = asyncio.run(answered(answer, prompts, 3))
    assert most == 3
    assert said == [prompt * 2 for prompt in prompts]
    assert speed > 0


ROUNDS = {"alone": [100.0, 390.0], "auto": [220.0, 200.0], "again": [120.0, 410.0]}


def test_each_round_is_told_by_what_was_made_alone_around_it() -> None:
    found = told(ROUNDS)
    assert found["times_alone"] == pytest.approx([2.0, 0.5])
    assert found["again_times_alone"] == pytest.approx([1.2, 410 / 390])


def test_the_table_has_a_row_a_number_of_sessions_and_temperature() -> None:
    report = {
        "cells": [{"sessions": 4, "temperature": 0.7, **told(ROUNDS)}],
        "answers_that_differ": 0,
    }
    assert rows(report) == ["| 4 | 0.7 | 255 | 210 | 2.00, 0.50 | 1.20, 1.05 |"]
    assert differing(report) == ["0"]
    assert below(report) == ["2", "1", "0.50", "0", "1.05"]
