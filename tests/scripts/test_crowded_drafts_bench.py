from __future__ import annotations

import asyncio

import pytest

from scripts.bench.crowded_drafts import answered, told
from scripts.write.figures_crowded import differing, rows


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


def test_rounds_are_told_by_the_median_alone() -> None:
    found = told({"alone": [100.0, 110.0, 400.0], "auto": [220.0, 110.0]})
    assert found["times_alone"] == pytest.approx([2.0, 1.0])


def test_the_table_has_a_row_a_number_of_sessions_and_temperature() -> None:
    cell = {"sessions": 4, "temperature": 0.7, **told({"alone": [100.0], "auto": [95.0, 105.0]})}
    report = {"cells": [cell], "answers_that_differ": 0}
    assert rows(report) == ["| 4 | 0.7 | 100 | 100 | 0.95, 1.05 |"]
    assert differing(report) == ["0"]
