"""Measured steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.verifiers.calibration import measure_steps


@pytest.fixture(scope="module")
def verifier(random_checkpoint: Callable[..., Path]) -> Verifier:
    return load_verifier(ModelFolder(random_checkpoint(num_hidden_layers=1), "random"))


def test_steps_are_medians_of_the_clock(verifier: Verifier) -> None:
    ticks = itertools.count()
    steps = measure_steps(verifier, lambda: float(next(ticks)), counts=(1, 4, 16, 17), repeats=3)
    assert steps == ((1, 1.0), (4, 1.0), (16, 1.0))


def test_a_slow_outlier_does_not_move_the_median(verifier: Verifier) -> None:
    times = iter([0.0, 9.0, 0.0, 2.0, 0.0, 100.0, 0.0, 3.0])
    assert measure_steps(verifier, lambda: next(times), counts=(2,), repeats=3) == ((2, 3.0),)


def test_no_count_takes_longer_than_a_larger_one(verifier: Verifier) -> None:
    """A machine that is busy with other things made one token look slower than four."""
    durations = itertools.chain([0.0] * 3, [5.0, 2.0, 3.0] * 3)
    times = (end for seconds in durations for end in (0.0, seconds))
    steps = measure_steps(verifier, lambda: next(times), counts=(1, 4, 16), repeats=3)
    assert steps == ((1, 2.0), (4, 2.0), (16, 3.0))


def test_long_steps_are_measured_less_often(verifier: Verifier) -> None:
    """Once to warm up, and three times; short ones five times."""
    for seconds, rounds in ((0.9, 4), (0.1, 6)):
        calls = itertools.count()
        steps = measure_steps(verifier, lambda: next(calls) * seconds, counts=(1,), repeats=5)  # noqa: B023
        assert [step for _, step in steps] == pytest.approx([seconds])
        assert next(calls) == 2 * rounds


@pytest.mark.parametrize(("positions", "counts"), [(48, 5), (20, 5), (9, 4)])
def test_a_model_of_few_positions_can_be_measured(
    random_checkpoint: Callable[..., Path], positions: int, counts: int
) -> None:
    path = random_checkpoint(num_hidden_layers=1, max_position_embeddings=positions)
    short = load_verifier(ModelFolder(path, "short"))
    ticks = itertools.count()
    assert len(measure_steps(short, lambda: float(next(ticks)), repeats=1)) == counts
