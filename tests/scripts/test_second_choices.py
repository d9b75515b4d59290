"""What a tree of drafts could win at most: its arithmetic, and how places are counted."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from scripts.eval.second_choices import Places, best, committed, line, ranked


def simulated(right: float, then: float, length: int, siblings: int, seed: int) -> float:
    """The mean of many forwards, place by place."""
    rng, total, count = random.Random(seed), 0, 40_000
    for _ in range(count):
        total += 1
        for place in range(length):
            if rng.random() < right:
                total += 1
                continue
            total += place < siblings and rng.random() < then
            break
    return total / count


@pytest.mark.parametrize(("right", "then"), [(0.9, 0.5), (0.4, 0.2), (0.0, 1.0)])
def test_what_a_forward_commits(right: float, then: float) -> None:
    for length, siblings in itertools.product((0, 1, 5), (0, 1, 5)):
        if siblings <= length:
            expected = committed(right, then, length, siblings)
            found = simulated(right, then, length, siblings, seed=7)
            assert found == pytest.approx(expected, abs=0.05), "seed 7"
    assert committed(1.0, 0.0, 4, 4) == 5


def test_a_tree_is_chosen_where_rows_cost_nothing_and_a_chain_where_they_cost_much() -> None:
    places = Places(count=100, first=70, second=20)
    assert [places.right, places.then] == pytest.approx([0.7, 2 / 3])
    free = best(places, lambda _: 1.0, lambda length: 0.01 * length, tree=True)
    assert free["second_choices"] == free["length"] > 0
    dear = best(places, float, lambda length: 0.01 * length, tree=True)
    assert dear["second_choices"] == 0
    chain = best(places, lambda _: 1.0, lambda length: 0.01 * length, tree=False)
    assert chain["second_choices"] == 0
    assert chain["tokens_per_second"] < free["tokens_per_second"]


def test_forwards_that_were_not_timed_lie_on_lines() -> None:
    at = line({1: 1.0, 4: 4.0, 8: 6.0})
    assert [at(count) for count in (1, 2, 6, 8, 10)] == pytest.approx([1, 2, 5, 6, 7])


def test_a_second_choice_is_the_choice_without_the_first() -> None:
    row = np.array([0.0, 3.0, 2.0, 1.0], np.float32)
    assert ranked(row, lambda logits: int(logits.argmax())) == (1, 2)
    assert row[1] == 3.0
