from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.speculation.block_measurement import BlockMeasurement
from kakeya_fleet.engine.speculation.pace import (
    AHEAD_RETRY_SHARE,
    FIRST_RETRY_BLOCKS,
    LATEST_PROBE_AT,
    LONGEST_RETRY_BLOCKS,
    PROBE_BLOCKS,
    PROBED_AT,
    Pace,
)
from kakeya_fleet.engine.speculation.place_rates import PlaceRates
from kakeya_fleet.engine.speculation.steps import FLAT, MeasuredSteps


def block(
    drafted: int = 8,
    accepted: int = 0,
    verify: float = 0.010,
    wait: float = 0.0,
    round_trip: float | None = None,
    compute: float = 0.0,
    *,
    found: bool = False,
) -> BlockMeasurement:
    return BlockMeasurement(
        drafted_count=drafted,
        accepted_count=accepted,
        committed_count=accepted + 1,
        verify_seconds=verify,
        wait_seconds=wait,
        round_trip_seconds=wait if round_trip is None else round_trip,
        compute_seconds=compute,
        is_found=found,
    )


def after(pace: Pace, *blocks: BlockMeasurement) -> Pace:
    for measured in blocks:
        pace = pace.after_block(measured)
    return pace


@pytest.mark.parametrize("truth", [0.2, 0.5, 0.8, 0.95])
def test_acceptance_converges_to_the_truth_although_blocks_end_at_a_mismatch(truth: float) -> None:
    rng = random.Random(1)
    pace, estimates = Pace(), []
    for _ in range(600):
        accepted = 0
        while accepted < 8 and rng.random() < truth:
            accepted += 1
        pace = pace.after_block(block(8, accepted))
        estimates.append(pace.acceptance)
    assert sum(estimates[100:]) / 500 == pytest.approx(truth, abs=0.07)


def test_blocks_grow_and_shrink_with_acceptance() -> None:
    hopeless = after(Pace(), *[block(15, 0)] * 20)
    middling = after(Pace(), *[block(8, 2)] * 20)
    perfect = after(Pace(), *[block(15, 15)] * 20)
    sizes = [pace.block_size(15) for pace in (hopeless, middling, perfect)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 1
    assert 3 <= sizes[1] <= 10
    assert sizes[2] >= 14


def test_drafts_lie_between_what_was_measured_and_forwards_are_padded() -> None:
    points = [(1, 1.0), (4, 4.0), (8, 12.0)]
    drafts, rows = (MeasuredSteps.of(points, padded=padded) for padded in (False, True))
    assert drafts.rising(9) == pytest.approx((1, 2, 3, 4, 6, 8, 10, 12, 13.5))
    assert rows.rising(9) == pytest.approx((1, 4, 4, 4, 12, 12, 12, 12, 13.5))
    assert MeasuredSteps.of([(2, 3.0)], padded=False).rising(2) == (3.0, 3.0)


def speeds(
    pace: Pace, most: int, verify: Callable[[int], float], wait: Callable[[int], float]
) -> list[float]:
    """Tokens a second of each block size, by the definition."""
    tokens = pace.expected_tokens(most)
    return [
        expected / (verify(size + 1) + wait(size)) for size, expected in enumerate(tokens, start=1)
    ]


@pytest.mark.parametrize("accepted", [0, 1, 3, 7, 15])
@pytest.mark.parametrize("most", [1, 2, 5, 15, 63])
def test_without_measured_steps_the_block_is_the_smallest_that_keeps_the_tokens(
    accepted: int, most: int
) -> None:
    pace = after(Pace(), *[block(15, accepted)] * 30)
    size = pace.block_size(most)
    assert 1 <= size <= most
    found = speeds(pace, most, lambda _rows: 1.0, lambda _size: 0.0)
    assert found[size - 1] >= 0.98 * max(found)
    assert size == 1 or found[size - 2] < 0.98 * max(found)


ROWS = MeasuredSteps.of([(1, 0.00143), (2, 0.00143), (4, 0.00143), (8, 0.00178), (16, 0.0028)])
DRAFTS = MeasuredSteps.of([(1, 0.00102), (4, 0.00102), (8, 0.00115), (15, 0.00192)])


@pytest.mark.parametrize("slower", [1.0, 3.0])
@pytest.mark.parametrize("accepted", [3, 5, 15])
def test_the_block_is_the_fastest_by_what_rows_and_drafts_cost(
    accepted: int, slower: float
) -> None:
    """Also on a machine that is slower now than when the models were loaded."""
    pace = Pace(verify_steps=ROWS, draft_steps=DRAFTS)
    wire = 0.0006
    for _ in range(60):
        drafted = pace.block_size(15)
        draft = slower * DRAFTS.seconds(drafted)
        pace = pace.after_block(
            block(
                drafted,
                min(accepted, drafted),
                verify=slower * ROWS.seconds(drafted + 1),
                wait=draft + wire,
                compute=draft,
            )
        )
    found = speeds(
        pace,
        15,
        lambda rows: slower * ROWS.seconds(rows),
        lambda size: slower * DRAFTS.seconds(size) + wire,
    )
    chosen = found[pace.block_size(15) - 1]
    assert chosen >= 0.97 * max(found)
    # Filling every row costs what the last rows do not bring.
    assert accepted == 15 or pace.block_size(15) <= 8


@pytest.mark.parametrize("slower", [1.0, 2.0, 5.0, 40.0])
def test_a_block_is_as_long_as_is_drafted_in_time(slower: float) -> None:
    """By what drafts take behind this history, on this machine, now."""
    steps = MeasuredSteps.of([(1, 0.01), (15, 0.15)], padded=False)
    pace = Pace(verify_steps=MeasuredSteps.of([(1, 0.02), (16, 0.04)]), draft_steps=steps)
    for _ in range(40):
        draft = slower * 0.15
        told = block(15, 15, verify=slower * 0.04, wait=draft + 0.005, compute=draft)
        pace = pace.after_block(told)
    assert pace.block_size(15) >= 14
    size = pace.block_size(15, 0.205)
    assert size == max(1, min(pace.block_size(15), int(0.2001 / (slower * 0.01))))


def test_who_takes_as_long_for_any_block_is_asked_for_whole_ones() -> None:
    late = block(15, 15, verify=0.01, wait=0.5, compute=0.5)
    pace = after(Pace(verify_steps=ROWS), *[late] * 20)
    assert pace.block_size(15, 0.2) == pace.block_size(15) >= 14


def test_who_ends_drafts_by_itself_is_asked_for_as_many_tokens_as_come_in_time() -> None:
    steps = MeasuredSteps.of([(1, 0.01), (15, 0.15)], padded=False)
    pace = Pace(draft_steps=steps, places=PlaceRates.assuming(0.1))
    assert pace.block_size(15) < 5
    assert replace(pace, ends_drafts=True).block_size(15) == 15
    assert replace(pace, ends_drafts=True).block_size(15, 0.105) == 10


def test_a_first_block_is_no_longer_than_its_rows_are_worth() -> None:
    assert Pace(verify_steps=ROWS, draft_steps=DRAFTS).block_size(15) == 7


def test_steps_cost_what_the_next_measured_count_does() -> None:
    assert [ROWS.seconds(count) for count in (1, 5, 8, 9, 32)] == [
        0.00143,
        0.00178,
        0.00178,
        0.0028,
        0.0056,
    ]
    assert MeasuredSteps.of([]) is MeasuredSteps.of([(1, 0.0)]) is FLAT
    assert FLAT.seconds(1) == FLAT.seconds(10**6) == 1.0


def test_a_text_that_is_copied_in_bursts_keeps_long_blocks() -> None:
    """Half the blocks accepted whole, half not at all: per token that is much."""
    pace = after(Pace(), *[block(15, 15), block(15, 0)] * 20)
    assert pace.block_size(15) >= 10


def test_drafting_that_costs_more_than_it_brings_is_dropped_after_a_few_tokens() -> None:
    slow = block(accepted=1, wait=0.015)
    # Half a token is lost a block: 2.5 in the time, 2 committed.
    assert not after(Pace(), *[slow] * 5).dropped
    assert after(Pace(), *[slow] * 8).dropped
    # Two tokens in 10 + 9 ms are faster than one in 10.
    assert not after(Pace(), *[block(accepted=1, wait=0.009)] * 50).dropped


def test_what_stood_in_the_text_says_nothing_of_what_a_model_takes() -> None:
    """A model of 10 ms a token, whose text quotes itself for a while."""
    steps = MeasuredSteps.of([(1, 0.01), (4, 0.04), (8, 0.08), (15, 0.15)])
    rows = MeasuredSteps.of([(1, 0.01), (16, 0.02)])
    fresh = Pace(verify_steps=rows, draft_steps=steps)
    made = after(fresh, *[block(4, 2, verify=0.012, wait=0.04, compute=0.04)] * 5)
    quoted = after(made, *[block(4, 4, verify=0.012, found=True)] * 30)
    assert quoted.draft_scale == made.draft_scale == pytest.approx(1.0)
    assert quoted.block_seconds(8) == pytest.approx(made.block_seconds(8))
    assert (quoted.made_count, quoted.block_count) == (5, 35)
    assert not quoted.dropped
    begun = after(fresh, block(4, 4, verify=0.012, wait=0.001, found=True))
    assert begun.block_seconds(8) == pytest.approx(fresh.block_seconds(8), rel=0.2)
    # Nor does a block without a draft, while its model reads the history.
    unread = after(fresh, *[block(0, 0, found=True)] * 3)
    assert unread.block_size(15) == fresh.block_size(15) < 15
    # What is quoted is free: a text on which the model would lose is not left for that.
    assert not after(fresh, *[block(4, 1, verify=0.012, found=True)] * 60).dropped
    assert after(fresh, *[block(4, 1, verify=0.012, wait=0.04, compute=0.04)] * 60).dropped


def test_a_useless_draft_that_costs_nothing_is_not_dropped() -> None:
    assert not after(Pace(), *[block(accepted=0, wait=0.0001)] * 100).dropped


def test_alone_is_one_token_in_one_row_not_in_a_block() -> None:
    """Two tokens in 2.8 + 2.5 ms are slower than one in 1.43 ms, though not than in 2.8."""
    pace = Pace(verify_steps=ROWS, draft_steps=DRAFTS)
    assert after(pace, *[block(15, 1, verify=0.0028, wait=0.0025, compute=0.0019)] * 9).dropped
    good = block(15, 4, verify=0.0028, wait=0.0025, compute=0.0019)
    assert not after(pace, *[good] * 100).dropped


def test_what_was_won_outlasts_a_bad_stretch_but_not_a_bad_text() -> None:
    good, bad = block(8, 7, wait=0.002), block(8, 0, wait=0.004)
    pace = after(Pace(), *[good] * 100)
    assert not after(pace, *[bad] * 8).dropped
    assert after(pace, *[bad] * 40).dropped


def test_one_hiccup_is_no_verdict() -> None:
    good = block(8, 4, wait=0.002)
    pace = after(Pace(), *[good] * 20, block(8, 0, verify=0.2, wait=0.2), *[good] * 3)
    assert not pace.dropped


def alone(pace: Pace) -> tuple[Pace, int]:
    """Decodes alone until drafting is tried again; the pace then, and how many blocks it took."""
    count = 0
    while pace.dropped:
        pace = pace.after_alone([0.01])
        count += 1
    return pace, count


def test_it_is_tried_again_with_one_block_at_growing_intervals() -> None:
    pace, waits = Pace(), []
    while not pace.dropped:
        pace = pace.after_block(block(accepted=0, wait=0.01))
    for _ in range(8):
        pace, count = alone(pace)
        waits.append(count)
        # The acceptance that is hoped for, not the one that failed.
        assert pace.block_size(15) >= 5
        pace = pace.after_block(block(accepted=0, wait=0.01))
        assert pace.dropped
    assert waits == [min(FIRST_RETRY_BLOCKS * 2**turn, LONGEST_RETRY_BLOCKS) for turn in range(8)]


def test_guesses_that_are_never_right_cost_little_in_all() -> None:
    """Within 200 tokens of a text that nobody can guess."""
    pace, tokens, seconds = Pace(verify_steps=ROWS, draft_steps=DRAFTS), 0, 0.0
    while tokens < 200:
        tokens += 1
        if pace.dropped:
            seconds += ROWS.seconds(1)
            pace = pace.after_alone([ROWS.seconds(1)])
            continue
        size = pace.block_size(15)
        verify, draft = ROWS.seconds(size + 1), DRAFTS.seconds(size)
        seconds += verify + draft + 0.0006
        pace = pace.after_block(block(size, 0, verify=verify, wait=draft + 0.0006, compute=draft))
    assert 200 * ROWS.seconds(1) / seconds > 0.95


def test_a_retry_that_pays_forgets_the_interval() -> None:
    pace = after(Pace(), *[block(accepted=0, wait=0.01)] * 8)
    pace, _ = alone(pace)
    pace = after(pace, *[block(accepted=7, wait=0.01)] * 8)
    assert not pace.dropped
    assert pace.next_retry_blocks == FIRST_RETRY_BLOCKS
    assert pace.retry_after_blocks == 0


def test_drafting_ahead_pays_when_it_hits_and_not_when_it_delays() -> None:
    good = after(Pace(), *[block(4, 4, round_trip=0.008)] * 21)
    assert good.should_draft_ahead()
    # A proposer slower than the verifier, whose blocks are never accepted whole.
    bad = after(Pace(), *[block(4, 1, round_trip=0.04, compute=0.04)] * 21)
    assert not bad.should_draft_ahead()


def ahead_of(
    pace: Pace, count: int, slowed: float, accepted: int, seconds: float
) -> tuple[Pace, list[bool]]:
    """`pace` after `count` blocks whose forward a draft beside it slows; which ones had one."""
    chosen = []
    for _ in range(count):
        ahead = pace.should_draft_ahead()
        chosen.append(ahead)
        verify = 0.010 * (slowed if ahead else 1.0)
        pace = after(
            pace,
            replace(
                block(8, accepted, verify=verify, wait=seconds, compute=seconds), beside_draft=ahead
            ),
        )
    return pace, chosen


def test_a_draft_ahead_that_slows_the_forward_beside_it_is_tried_seldom() -> None:
    """As where both share their cores: what it hides, the forward pays."""
    pace, chosen = ahead_of(Pace(), 400, 2.5, 8, 0.012)
    assert chosen[0] is False
    # One is enough to know it.
    assert sum(chosen[:16]) == 1
    assert 2 <= sum(chosen) <= 400 / 16
    assert pace.overlap.slowed_forward > 0.5 * pace.overlap.forward_apart.mean
    # Two machines: all but those that show that it still pays.
    _, chosen = ahead_of(Pace(), 400, 1.0, 8, 0.012)
    assert chosen[1:16] == [True] * 15
    assert sum(chosen) >= 400 * 15 / 17
    # What slowed it has gone.
    pace, chosen = ahead_of(pace, 600, 1.0, 8, 0.012)
    assert all(chosen[-12:]) or sum(chosen[-34:]) >= 30


def test_a_draft_that_is_slower_beside_a_forward_hides_nothing() -> None:
    """Two processes on the same cores: the forward takes what the draft leaves, and so does it."""
    chosen, pace, before = [], Pace(), False
    for _ in range(400):
        ahead = pace.should_draft_ahead()
        chosen.append(ahead)
        # Apart 10 ms and 24; beside each other 22 for the forward, and 44 from asking on.
        verify, draft = (0.022 if ahead else 0.010), (0.044 if before else 0.024)
        measured = block(4, 4, verify, wait=draft - 0.022 * before, round_trip=draft, compute=draft)
        pace = after(pace, replace(measured, beside_draft=ahead, made_ahead=before))
        before = ahead
    assert sum(chosen[40:]) < 0.15 * 360
    # On two machines the same draft is worth it.
    _, chosen = ahead_of(Pace(), 400, 1.0, 8, 0.024)
    assert sum(chosen) >= 400 * 15 / 17


def test_what_reading_a_prompt_takes_is_no_time_of_drafts() -> None:
    steps = MeasuredSteps.of([(1, 0.005), (4, 0.02)], padded=False)
    fresh = Pace(verify_steps=ROWS, draft_steps=steps)
    first = block(4, 4, verify=ROWS.seconds(5), wait=0.2, compute=0.2)
    read = after(fresh, replace(first, reads=True))
    assert (read.draft_scale, read.made_count, read.overlap.draft_apart.count) == (1.0, 0, 0)
    assert read.block_seconds(4) == pytest.approx(fresh.block_seconds(4))
    drafted = after(read, block(4, 4, wait=0.02, compute=0.02))
    assert drafted.draft_scale == pytest.approx(1.0)
    # Nothing else is known of a model whose card says nothing.
    assert after(Pace(), replace(first, reads=True)).made_count == 1


def test_a_proposer_that_says_it_found_its_drafts_is_judged_by_what_they_were_waited_for() -> None:
    steps = MeasuredSteps.of([(1, 0.0001), (15, 0.0002)])
    fresh = Pace(verify_steps=ROWS, draft_steps=steps)
    made = after(fresh, block(8, 4, verify=ROWS.seconds(9), wait=0.0002, compute=0.0002))
    slow = block(8, 4, verify=ROWS.seconds(9), wait=0.05, compute=0.0, found=True)
    assert after(made, *[slow] * 3).dropped
    quick = replace(slow, wait_seconds=0.001, round_trip_seconds=0.001)
    assert not after(made, *[quick] * 40).dropped


def test_a_draft_ahead_costs_what_all_its_tokens_did() -> None:
    """It has one more than is verified: the one that is guessed in front."""
    steps = MeasuredSteps.of([(1, 0.005), (4, 0.02), (8, 0.04)], padded=False)
    ahead = replace(block(4, 4, wait=0.025, compute=0.025), made_ahead=True, made_count=5)
    pace = after(Pace(verify_steps=ROWS, draft_steps=steps), ahead)
    assert pace.draft_scale == pytest.approx(1.0)
    assert pace.overlap.draft_beside.mean == pytest.approx(1.0)


def test_drafts_ahead_that_delay_are_tried_for_a_bounded_share_of_the_time() -> None:
    _, chosen = ahead_of(Pace(), 1000, 1.0, 1, 0.04)
    # A miss delays by 30 ms, of blocks of 50.
    assert 0 < sum(chosen) * 0.030 <= 1.1 * AHEAD_RETRY_SHARE * 1000 * 0.050


def drafted_blocks(pace: Pace, count: int, other_seconds: float = 0.0) -> Pace:
    """`pace` after `count` blocks in which 1 of 3 guesses was right."""
    for _ in range(count):
        pace = pace.after_block(
            BlockMeasurement(
                drafted_count=3,
                accepted_count=1,
                committed_count=2,
                verify_seconds=0.003,
                wait_seconds=0.0005,
                round_trip_seconds=0.0005,
                compute_seconds=0.0004,
                other_seconds=other_seconds,
            )
        )
    return pace


def test_what_decoding_alone_takes_is_measured_a_little_after_the_start() -> None:
    pace = drafted_blocks(Pace(), PROBED_AT - 1)
    assert not pace.dropped
    pace = drafted_blocks(pace, 1)
    for _ in range(PROBE_BLOCKS):
        assert pace.dropped
        pace = pace.after_alone([0.001], 0.0005)
    assert not pace.dropped
    assert pace.alone_seconds == pytest.approx(0.0015)


def test_what_alone_takes_is_not_measured_while_its_proposer_reads() -> None:
    """Its drafts are empty, and slow both: what comes then is up to twice as slow."""
    reading = block(0, 0, verify=0.003, wait=0.001)
    pace = after(Pace(), *[reading] * (PROBED_AT + 3))
    assert not pace.dropped
    assert drafted_blocks(pace, PROBED_AT - 1).dropped is False
    assert drafted_blocks(pace, PROBED_AT).dropped
    # One that has nothing to draft for long is not waited for.
    assert after(pace, *[reading] * (LATEST_PROBE_AT - PROBED_AT - 3)).dropped


def test_what_wins_much_is_measured_against_alone_later() -> None:
    copied, measured = block(15, 15, verify=ROWS.seconds(16), wait=0.001), Pace(verify_steps=ROWS)
    assert not after(measured, *[copied] * (LATEST_PROBE_AT - 1)).dropped
    assert after(measured, *[copied] * LATEST_PROBE_AT).dropped
    # Where steps were not measured nobody knows what it wins.
    assert after(Pace(), *[copied] * PROBED_AT).dropped


def test_the_first_block_behind_a_draft_says_nothing_of_alone_and_others_count_alike() -> None:
    pace = drafted_blocks(Pace(), PROBED_AT).after_alone([0.004], behind_draft=True)
    assert pace.alone_seconds == 0.0
    told = (0.001, 0.002, 0.003)
    for seconds in told:
        pace = pace.after_alone([seconds])
    assert pace.alone_seconds == pytest.approx(sum(told) / 3)
    assert pace.alone_block_count == 4


def test_forwards_that_drafts_slow_down_do_not_hide_that_alone_is_faster() -> None:
    """2 tokens in 4.5 ms; by the drafted forwards alone would take 3 ms a token, it takes 1.5."""
    pace = drafted_blocks(Pace(), PROBED_AT, other_seconds=0.001)
    for _ in range(PROBE_BLOCKS):
        pace = pace.after_alone([0.001], 0.0005)
    pace = drafted_blocks(pace, 30, other_seconds=0.001)
    assert pace.dropped


def test_a_pair_that_pays_goes_on_after_the_measurement() -> None:
    pace = drafted_blocks(Pace(), PROBED_AT)
    for _ in range(PROBE_BLOCKS):
        pace = pace.after_alone([0.003], 0.0005)
    for _ in range(100):
        pace = drafted_blocks(pace, 1)
        assert not pace.dropped


@given(
    st.lists(st.floats(1e-4, 0.1), min_size=1, max_size=20),
    st.floats(0.0, 0.01),
    st.booleans(),
    st.booleans(),
)
def test_tokens_told_together_are_told_one_by_one(
    seconds: list[float], other: float, beside_opening: bool, behind_draft: bool
) -> None:
    together = Pace(verify_steps=ROWS).after_alone(
        seconds,
        len(seconds) * other,
        beside_opening=beside_opening,
        behind_draft=behind_draft,
    )
    each = Pace(verify_steps=ROWS)
    for place, own in enumerate(seconds):
        first = behind_draft and not place
        # What is told of at once began before anybody of it had been told of.
        opens = beside_opening and place == 0
        each = each.after_alone([own], other, beside_opening=opens, behind_draft=first)
    assert together.alone_told_count == each.alone_told_count
    assert together.alone_block_count == each.alone_block_count
    assert together.alone_seconds == pytest.approx(each.alone_seconds)
    assert together.verify_scale == pytest.approx(each.verify_scale)
