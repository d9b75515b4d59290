from __future__ import annotations

import random

import pytest

from kakeya_fleet.engine.speculation.place_rates import PRIOR_RATE, REMEMBERED_TRIALS, PlaceRates


def fed(rates: PlaceRates, *blocks: tuple[int, int]) -> PlaceRates:
    for drafted, accepted in blocks:
        rates = rates.after(drafted, accepted)
    return rates


def geometric(rate: float, most: int) -> list[float]:
    return [sum(rate**count for count in range(size + 1)) for size in range(1, most + 1)]


@pytest.mark.parametrize("most", [1, 2, 3, 4, 7, 8, 15, 16, 63])
def test_before_anything_is_measured_every_place_is_accepted_alike(most: int) -> None:
    assert PlaceRates().expected(most) == pytest.approx(geometric(PRIOR_RATE, most))


def test_the_tokens_of_each_size_are_those_that_blocks_commit() -> None:
    """Blocks whose first places are right more often than the later ones."""
    rng = random.Random(3)
    truth = [0.9] * 3 + [0.5] * 4 + [0.2] * 8
    rates, sums, count = PlaceRates(), [0.0] * 15, 0
    for index in range(800):
        accepted = 0
        while accepted < 15 and rng.random() < truth[accepted]:
            accepted += 1
        rates = rates.after(15, accepted)
        if index >= 200:
            count += 1
            sums = [have + new for have, new in zip(sums, rates.expected(15), strict=True)]
    reached, tokens, expected = 1.0, 1.0, []
    for rate in truth:
        reached *= rate
        tokens += reached
        expected.append(tokens)
    for mean, exact in zip((have / count for have in sums), expected, strict=True):
        assert mean == pytest.approx(exact, rel=0.08)


def test_a_mismatch_says_nothing_of_the_places_behind_it() -> None:
    rates = fed(PlaceRates(), *[(15, 1)] * 40)
    assert rates.trials[1:] == (0.0, 0.0, 0.0)
    assert rates.trials[0] == pytest.approx(20, rel=0.05)
    assert rates.accepted[0] == pytest.approx(10, rel=0.05)


def test_long_blocks_that_fail_early_do_not_lower_the_first_places() -> None:
    short = fed(PlaceRates(), *[(3, 3)] * 40)
    long = fed(PlaceRates(), *[(7, 3)] * 40)
    assert long.expected(3) == pytest.approx(short.expected(3))
    assert long.expected(7)[-1] < short.expected(7)[-1] - 2


def test_places_that_nobody_tries_are_forgotten_slower_than_those_that_are_tried() -> None:
    failed = fed(PlaceRates(), *[(7, 3)] * 20)
    later = fed(failed, *[(3, 3)] * 20)
    gained = later.expected(7)[-1] - failed.expected(7)[-1]
    assert 0.1 < gained < 2
    assert fed(failed, *[(3, 3)] * 300).expected(7)[-1] == pytest.approx(8, rel=0.1)


def test_a_hopeful_block_is_expected_to_commit_what_was_assumed_at_first() -> None:
    hopeless = fed(PlaceRates(), *[(15, 0)] * 50)
    assert hopeless.expected(15)[-1] < 1.2
    assert hopeless.expected(15, hopeful=True) == pytest.approx(geometric(PRIOR_RATE, 15))


def test_texts_count_together_and_less_with_every_one_behind_them() -> None:
    good, bad = fed(PlaceRates(), *[(4, 4)] * 40), fed(PlaceRates(), *[(4, 0)] * 40)
    rates = PlaceRates()
    expected = []
    for text in [good] * 9 + [bad] * 9:
        rates = rates.and_those_of(text)
        expected.append(rates.remembered().expected(3)[-1])
    # One text that nobody guesses does not outweigh all before it, as several do.
    assert expected[8] > expected[9] > 0.7 * expected[8]
    assert expected == sorted(expected[:9]) + sorted(expected[9:], reverse=True)
    assert expected[-1] < 0.5 * expected[8]


def test_what_is_assumed_is_soon_outweighed() -> None:
    sure = PlaceRates.assuming(0.9)
    assert geometric(0.8, 15)[-1] < sure.expected(15)[-1] < geometric(0.9, 15)[-1]
    assert fed(sure, *[(4, 0)] * 8).expected(4)[-1] < 0.5 * sure.expected(4)[-1]


def test_what_is_remembered_has_the_same_rates_and_little_weight() -> None:
    rates = fed(PlaceRates(), *[(15, 15)] * 40, *[(15, 2)] * 3)
    kept = rates.remembered()
    assert max(kept.trials) == REMEMBERED_TRIALS
    for right, tried, was_right, was_tried in zip(
        kept.accepted, kept.trials, rates.accepted, rates.trials, strict=True
    ):
        assert right * was_tried == pytest.approx(was_right * tried)
    # A text on which nothing is right is known for one after a few blocks.
    assert fed(kept, *[(15, 0)] * 8).expected(15)[-1] < kept.expected(15)[-1] / 2
    assert PlaceRates().remembered() == PlaceRates()
