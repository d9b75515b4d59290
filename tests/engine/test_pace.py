from __future__ import annotations

import random

import pytest

from engine.speculation.pace import (
    FIRST_RETRY_BLOCKS,
    LONGEST_RETRY_BLOCKS,
    BlockMeasurement,
    Pace,
    expected_tokens,
)


def block(drafted=8, accepted=0, verify=0.010, wait=0.0, round_trip=None, compute=0.0):
    return BlockMeasurement(
        drafted_count=drafted,
        accepted_count=accepted,
        committed_count=accepted + 1,
        verify_seconds=verify,
        wait_seconds=wait,
        round_trip_seconds=wait if round_trip is None else round_trip,
        compute_seconds=compute,
    )


def after(pace, *blocks):
    for measured in blocks:
        pace = pace.after_block(measured)
    return pace


@pytest.mark.parametrize("truth", [0.2, 0.5, 0.8, 0.95])
def test_acceptance_converges_to_the_truth_although_blocks_end_at_a_mismatch(truth):
    rng = random.Random(1)
    pace, estimates = Pace(), []
    for _ in range(600):
        accepted = 0
        while accepted < 8 and rng.random() < truth:
            accepted += 1
        pace = pace.after_block(block(8, accepted))
        estimates.append(pace.acceptance)
    assert sum(estimates[100:]) / 500 == pytest.approx(truth, abs=0.07)


def test_blocks_grow_and_shrink_with_acceptance():
    hopeless = after(Pace(), *[block(15, 0)] * 20)
    middling = after(Pace(), *[block(8, 2)] * 20)
    perfect = after(Pace(), *[block(15, 15)] * 20)
    sizes = [pace.block_size(15) for pace in (hopeless, middling, perfect)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 1
    assert 3 <= sizes[1] <= 10
    assert sizes[2] >= 14


@pytest.mark.parametrize("accepted", [0, 1, 3, 7, 15])
@pytest.mark.parametrize("most", [1, 2, 5, 15, 63])
def test_the_block_is_the_smallest_that_keeps_the_tokens(accepted, most):
    pace = after(Pace(), *[block(15, accepted)] * 30)
    size = pace.block_size(most)
    assert 1 <= size <= most
    enough = 0.97 * expected_tokens(pace.acceptance, most)
    assert expected_tokens(pace.acceptance, size) >= enough
    assert size == 1 or expected_tokens(pace.acceptance, size - 1) < enough


def test_a_text_that_is_copied_in_bursts_keeps_long_blocks():
    """Half the blocks accepted whole, half not at all: per token that is much."""
    pace = after(Pace(), *[block(15, 15), block(15, 0)] * 20)
    assert pace.block_size(15) >= 10


def test_drafting_that_costs_more_than_it_brings_is_dropped_after_eight_blocks():
    slow = block(accepted=1, wait=0.015)
    assert not after(Pace(), *[slow] * 7).dropped
    assert after(Pace(), *[slow] * 8).dropped
    # Two tokens in 10 + 9 ms are faster than one in 10.
    assert not after(Pace(), *[block(accepted=1, wait=0.009)] * 50).dropped


def test_a_useless_draft_that_costs_nothing_is_not_dropped():
    assert not after(Pace(), *[block(accepted=0, wait=0.0001)] * 100).dropped


def test_it_is_tried_again_at_growing_intervals():
    pace, waits = Pace(), []
    for _ in range(8):
        while not pace.dropped:
            pace = pace.after_block(block(accepted=0, wait=0.01))
        waits.append(0)
        while pace.dropped:
            pace = pace.after_alone_block()
            waits[-1] += 1
    assert waits == [min(FIRST_RETRY_BLOCKS * 2**turn, LONGEST_RETRY_BLOCKS) for turn in range(8)]


def test_a_retry_that_pays_forgets_the_interval():
    pace = after(Pace(), *[block(accepted=0, wait=0.01)] * 8)
    while pace.dropped:
        pace = pace.after_alone_block()
    pace = after(pace, *[block(accepted=7, wait=0.01)] * 8)
    assert not pace.dropped
    assert pace.next_retry_blocks == FIRST_RETRY_BLOCKS
    assert pace.retry_after_blocks == 0


def test_drafting_ahead_pays_when_it_hits_and_not_when_it_delays():
    good = after(Pace(), *[block(4, 4, round_trip=0.008)] * 21)
    assert good.should_draft_ahead()
    # A proposer slower than the verifier, whose blocks are never accepted whole.
    bad = after(Pace(), *[block(4, 1, round_trip=0.04, compute=0.04)] * 21)
    assert not bad.should_draft_ahead()
    tried = [after(bad, *[block(4, 1, round_trip=0.04, compute=0.04)] * more) for more in range(16)]
    assert sum(pace.should_draft_ahead() for pace in tried) == 1
