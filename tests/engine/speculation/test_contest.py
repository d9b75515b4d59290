"""Who drafts, found out on the session's own stream: right in the end, and at a bounded cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.errors import DraftFaultKind
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.proposers.ngram import NgramProposer
from kakeya_fleet.engine.speculation.block_measurement import BlockMeasurement
from kakeya_fleet.engine.speculation.contest import TRIAL_SHARE, TRIAL_TOKENS
from kakeya_fleet.engine.speculation.roster import Rival, Roster
from kakeya_fleet.engine.speculation.state import SpeculationState
from kakeya_fleet.engine.speculation.trial_book import (
    FREE_TOKENS,
    KEPT_SECONDS,
    LOST_SHARE,
    TrialBook,
    TrialBooks,
)
from tests.support.breadth import again, wide

ALONE_SECONDS = 0.01
BLOCK_SECONDS = 0.015
SLOWED = 2.0
"""A forward while one that is to be tried reads the history on the same machine."""


@dataclass
class Stream:
    """A text of which each proposer guesses so many tokens a block; a clock of made-up blocks.

    One that is to be tried opens beside `opening_blocks`, and reads `history_tokens` there.
    """

    roster: Roster
    accepted: list[int]
    broken: frozenset[int] = frozenset()
    opening_blocks: int = 0
    history_tokens: int = 0
    opened_blocks: int = 0
    tokens: int = 0
    seconds: float = 0.0
    drafted_by: list[int | None] = field(default_factory=list)

    def block(self) -> None:
        """What `Drafting` does around a block, without its tasks."""
        roster, slowed = self.roster, 1.0
        if roster.warming is not None:
            if self.opened_blocks < self.opening_blocks:
                self.opened_blocks, slowed = self.opened_blocks + 1, SLOWED
            else:
                self.opened_blocks = 0
                drafted = roster.warming not in self.broken
                roster.warmed(drafted=drafted, read_tokens=self.history_tokens)
        index = roster.current
        state = roster.rivals[index].state if index is not None else None
        if index is None or state is None or state.pace.dropped or index in self.broken:
            self.tokens += 1
            self.seconds += slowed * ALONE_SECONDS
            self.drafted_by.append(None)
            roster.after_alone([slowed * ALONE_SECONDS], 0.0)
            return
        accepted = self.accepted[index]
        state.pace = state.pace.after_block(
            BlockMeasurement(15, accepted, accepted + 1, slowed * 0.012, 0.003, 0.003, 0.002)
        )
        self.tokens += accepted + 1
        self.seconds += BLOCK_SECONDS + (slowed - 1.0) * 0.012
        self.drafted_by.append(index)
        roster.after_draft(accepted + 1)

    def blocks(self, count: int) -> list[int | None]:
        """Who drafted each of the next `count`."""
        for _ in range(count):
            self.block()
        return self.drafted_by[-count:]


def stream(
    *accepted: int,
    hopes: tuple[float, ...] | None = None,
    leads: bool = True,
    broken: Sequence[int] = (),
    book: TrialBook | None = None,
    gain: float = 1.0,
    opening_blocks: int = 0,
    history_tokens: int = 0,
) -> Stream:
    rivals = [
        Rival(("n", str(index)), LocalDraftSource(NgramProposer()), SpeculationState(), hope)
        for index, hope in enumerate(hopes or (8.0,) * len(accepted))
    ]
    roster = Roster(rivals, leads=leads, book=book, gain=gain, history_tokens=history_tokens)
    return Stream(roster, list(accepted), frozenset(broken), opening_blocks, history_tokens)


def test_a_faster_proposer_takes_over_and_stays() -> None:
    text = stream(2, 6)
    text.blocks(40)
    assert text.blocks(100).count(1) >= 95


def test_a_slower_one_is_tried_and_the_leader_comes_back() -> None:
    text = stream(6, 2)
    drafted = text.blocks(400)
    assert 0 < drafted.count(1) < 20
    assert drafted[-1] == 0


def test_a_verifier_that_begins_alone_tries_what_could_be_faster() -> None:
    text = stream(3, leads=False)
    drafted = text.blocks(60)
    assert drafted[:4] == [None] * 4
    assert drafted[-30:] == [0] * 30


def test_what_cannot_win_at_best_is_never_tried() -> None:
    assert 1 not in stream(2, 6, hopes=(4.0, 1.1)).blocks(300)
    assert set(stream(6, hopes=(0.9,), leads=False).blocks(300)) == {None}


def test_what_opening_slows_is_not_taken_for_decoding_alone() -> None:
    """Else one that is slower than alone wins its trial, and leads."""
    text, apart = (stream(0, leads=False, opening_blocks=count) for count in (12, 0))
    assert text.blocks(400).count(0) <= apart.blocks(400).count(0)
    (rival,) = text.roster.rivals
    assert rival.state.pace.alone_seconds == pytest.approx(ALONE_SECONDS)


def test_what_comes_right_behind_a_draft_is_not_taken_for_decoding_alone() -> None:
    text = stream(2)
    text.blocks(200)
    (rival,) = text.roster.rivals
    told = rival.state.pace.alone_told_count
    text.roster.after_draft(1)
    rival.state.pace = rival.state.pace.resting(9, 9)
    text.roster.after_alone([ALONE_SECONDS], 0.0)
    assert rival.state.pace.alone_told_count == told
    text.roster.after_alone([ALONE_SECONDS], 0.0)
    assert rival.state.pace.alone_told_count == told + 1
    text.roster.after_draft(1)
    rival.state.pace = rival.state.pace.resting(9, 9)
    text.roster.after_alone([ALONE_SECONDS] * 3, 0.0)
    assert rival.state.pace.alone_told_count == told + 3


def test_what_opening_slows_is_not_taken_for_the_leaders_pace() -> None:
    text = stream(4, 3, opening_blocks=12)
    drafted = text.blocks(400)
    assert 0 < drafted.count(1) <= stream(4, 3).blocks(400).count(1)


def test_the_leader_changes_when_the_text_does() -> None:
    text = stream(2, 6)
    assert text.blocks(60)[-20:].count(1) >= 15
    text.accepted = [4, 0]
    # The former leader is still the measured second best: back to it at once.
    assert text.blocks(20)[-12:] == [0] * 12
    text.accepted = [0, 9]
    assert text.blocks(200)[-20:].count(1) >= 15


def test_a_text_that_nobody_guesses_is_decoded_alone() -> None:
    text = stream(0, 0)
    text.blocks(1000)
    # Half a token is lost a block.
    assert text.drafted_by.count(None) > 900
    assert text.roster.drop_reason is not None


def test_a_broken_one_takes_no_block_and_is_asked_ever_more_rarely() -> None:
    text = stream(2, 6, broken=[1])
    asked = []
    for number in range(2000):
        if text.roster.warming == 1:
            asked.append(number)
        text.block()
    assert 1 not in text.drafted_by
    rests = [after - before for before, after in pairwise(asked)]
    assert rests == sorted(rests)
    assert len(asked) < 12


def test_a_leader_that_cannot_draft_gives_way() -> None:
    text = stream(2, 6, leads=True)
    text.blocks(60)
    text.broken = frozenset({1})
    text.roster.rivals[1].state.breaker = text.roster.rivals[1].state.breaker.after_fault(
        DraftFaultKind.UNREACHABLE, 0.0
    )
    assert text.blocks(20)[-12:] == [0] * 12


SPEEDS = st.lists(st.integers(0, 12), min_size=2, max_size=4)


@again(3)
@settings(deadline=None, max_examples=8)
@given(SPEEDS, st.booleans(), st.integers(50, 600))
@example([12, 0, 0, 0], True, 1200)
@example([3, 2, 2], True, 400)
def test_what_is_lost_to_the_best_is_bounded(accepted: list[int], leads: bool, count: int) -> None:
    """The formula of `contest`, with what any leader pays: its own trials, and finding the best.

    A difference below the pace's tolerance of 2 % is none.
    """
    text = stream(*accepted, leads=leads)
    text.blocks(count)
    alone = 1.0 / ALONE_SECONDS
    speeds = [(each + 1) / BLOCK_SECONDS for each in accepted]
    best = max([alone, *speeds])
    lost = 0.97 * best * text.seconds - text.tokens
    block = best * BLOCK_SECONDS
    tried = (len(accepted) + 1) * (TRIAL_TOKENS + block)
    tried += (1 + block / TRIAL_TOKENS) * TRIAL_SHARE * count
    # A leader whose drafts are dropped tries again by itself, ever more seldom.
    rounds = 2 + math.log2(1 + count / 16) + count / 1024
    retried = block * rounds
    # Until the best one leads, the others are tried and found better one after the other.
    search = len(accepted) * 16 * block
    assert lost <= tried + retried + search
    # However dear a trial is, there are no more of them than its rests leave.
    assert lost <= len(accepted) * (TRIAL_TOKENS + block) * rounds + search


@settings(deadline=None, max_examples=5)
@given(SPEEDS, st.booleans())
def test_the_same_measurements_make_the_same_choices(accepted: list[int], leads: bool) -> None:
    one, other = (stream(*accepted, leads=leads) for _ in range(2))
    assert one.blocks(200) == other.blocks(200)


@pytest.mark.parametrize("best", [0, 1, 2, 3])
def test_the_best_of_several_is_found(best: int) -> None:
    text = stream(*[9 if index == best else 2 for index in range(4)])
    text.blocks(200)
    assert text.blocks(20).count(best) >= 19


ANSWER_BLOCKS = 100


def answers(count: int, *accepted: int, book: TrialBook | None, leads: bool = True) -> list[Stream]:
    """Sessions one after the other, each with a text of its own."""
    told = []
    for _ in range(count):
        told.append(stream(*accepted, leads=leads, book=book))
        told[-1].blocks(ANSWER_BLOCKS)
    return told


def seconds_over_alone(sessions: Sequence[Stream]) -> float:
    """What their tokens took, in times of decoding them alone."""
    tokens = sum(each.tokens for each in sessions)
    return sum(each.seconds for each in sessions) / (tokens * ALONE_SECONDS)


@pytest.mark.parametrize("leads", [True, wide(False)])
def test_sessions_do_not_pay_again_for_what_others_found_out(leads: bool) -> None:
    """Three proposers that no text suits: few of the later answers try them."""
    book = TrialBook()
    without = answers(1, 0, 0, 0, book=None, leads=leads)
    told = answers(50, 0, 0, 0, book=book, leads=leads)
    assert seconds_over_alone(without) > 1.12
    # What is not known yet is tried soon, though not all of it at once.
    assert {0, 1, 2} <= {by for each in told[:3] for by in each.drafted_by if by is not None}
    # One trial in five of what three cost.
    assert seconds_over_alone(told[-30:]) < 1.05
    # And none of them is left alone for good.
    assert {0, 1, 2} <= {by for each in told[-30:] for by in each.drafted_by if by is not None}


@pytest.mark.parametrize("leads", [wide(True), False])
def test_what_suits_one_text_in_six_is_tried_on_each(leads: bool) -> None:
    """From the first such text on: what it gains there pays for its trials on the others."""
    book = TrialBook()
    (alone,) = answers(1, 6, 0, 0, book=None, leads=leads)
    answers(1, 6, 0, 0, book=book, leads=leads)
    for _ in range(6):
        answers(5, 0, 0, 0, book=book, leads=leads)
        (suited,) = answers(1, 6, 0, 0, book=book, leads=leads)
        assert suited.drafted_by.count(0) >= alone.drafted_by.count(0)


@pytest.mark.parametrize("leads", [wide(True), False])
def test_what_suits_one_text_in_six_is_found(leads: bool) -> None:
    """Though nothing that was tried before did anything but lose."""
    book = TrialBook()
    answers(10, 0, 0, 0, book=book, leads=leads)
    led = []
    for _ in range(8):
        answers(5, 0, 0, 0, book=book, leads=leads)
        (suited,) = answers(1, 6, 0, 0, book=book, leads=leads)
        led.append(suited.drafted_by.count(0) > ANSWER_BLOCKS / 2)
    assert led[-1]


LOSING = {
    "nobody is faster": ((0, 0, 0), 0),
    "nobody is faster, and all read for long": ((0, 0, 0), 30),
    "what opening costs is more than is won": ((1, 1, 1), 60),
}


@pytest.mark.parametrize("leads", [True, wide(False)])
@pytest.mark.parametrize("case", LOSING)
def test_sessions_together_lose_a_twentieth_at_most(case: str, leads: bool) -> None:
    """Who wins its trial, and less than it cost to open, has lost; by plan it leads at once."""
    accepted, opening = LOSING[case]
    book, told = TrialBook(), []
    for _ in range(60):
        text = stream(
            *accepted, leads=leads, book=book, opening_blocks=opening, history_tokens=3000
        )
        text.blocks(ANSWER_BLOCKS)
        told.append(text)
    alone = stream(*accepted, leads=leads, opening_blocks=opening)
    alone.blocks(ANSWER_BLOCKS)
    assert seconds_over_alone([alone]) > 1.1
    assert seconds_over_alone(told[:6]) < 1.15
    assert seconds_over_alone(told[-40:]) < 1.0 + TRIAL_SHARE
    lost = sum(each.seconds / ALONE_SECONDS - each.tokens for each in told)
    # Beyond what is there to lose: the trials that began before one of them was seen to lose it.
    assert lost <= FREE_TOKENS + LOST_SHARE * 60 * ANSWER_BLOCKS + 3 * (opening + 2 * TRIAL_TOKENS)


def test_what_gains_is_tried_whatever_others_lose() -> None:
    book = TrialBook()
    answers(3, 6, 0, 0, book=book)
    for _ in range(20):
        book.session_begun()
        book.gained(("n", "1"), -20.0)
    assert book.owed_blocks(("n", "0")) == 0
    assert book.owed_blocks(("n", "2")) > ANSWER_BLOCKS


def test_a_source_that_was_given_up_costs_the_next_one_nothing() -> None:
    """What it slowed is its own, and is not told as what the other took to open."""
    book = TrialBook()
    text = stream(0, 6, leads=False, broken=[0], hopes=(8.0, 4.0), book=book, opening_blocks=4)
    text.blocks(40)
    failed, drafted = (book._records["n", str(index)] for index in range(2))
    assert failed.opening_tokens == 0.0
    assert failed.gained == pytest.approx(-4.0)
    assert drafted.opening_tokens == pytest.approx(4.0)


def test_behind_long_histories_trials_come_to_something_else() -> None:
    books = TrialBooks()
    kinds = {
        length: books.of("v", sampled=True, history_tokens=length)
        for length in (0, 1023, 1024, 2047, 2048, 4095, 4096)
    }
    assert len({id(book) for book in kinds.values()}) == 4
    assert kinds[0] is kinds[1023]
    assert kinds[1024] is kinds[2047]
    assert kinds[2048] is kinds[4095]
    assert books.of("v", sampled=False) is not kinds[0]


@pytest.mark.parametrize("leads", [True, wide(False)])
def test_what_has_become_fast_is_found_again(leads: bool) -> None:
    book = TrialBook()
    answers(40, 0, 0, 0, book=book, leads=leads)
    told = answers(30, 0, 6, 0, book=book, leads=leads)
    assert seconds_over_alone(told[-10:]) < 0.4
    # From then on it is tried as soon as one of which nothing is known.
    fresh = stream(0, 6, 0, leads=leads)
    assert told[-1].drafted_by.index(1) <= fresh.blocks(ANSWER_BLOCKS).index(1)


def test_a_leader_that_won_leads_from_the_first_block_of_the_next_session() -> None:
    book = TrialBook()
    answers(40, 0, 0, book=book)
    assert answers(30, 6, 0, book=book)[-1].drafted_by[:6] == [0] * 6


def test_a_long_session_tries_what_short_ones_would_not() -> None:
    book = TrialBook()
    answers(40, 0, 0, book=book, leads=False)
    book.lost(("n", "0"))
    text = stream(6, 0, leads=False, book=book)
    rest = book.rest_blocks(("n", "0"), 8.0)
    assert rest > ANSWER_BLOCKS
    assert 0 not in text.blocks(rest)
    assert text.blocks(2 * ANSWER_BLOCKS)[-1] == 0


def test_beside_a_leader_that_is_expected_to_be_fast_a_trial_has_less_to_win() -> None:
    def lost_in_all() -> TrialBook:
        book = TrialBook()
        for _ in range(12):
            book.session_begun()
            book.tokens_made(ANSWER_BLOCKS)
            book.lost(("n", "1"))
        return book

    book, gains = lost_in_all(), (1.0, 2.0, 8.0)
    plain, led, hopeless = (book.rest_blocks(("n", "1"), 8.0, gain) for gain in gains)
    assert ANSWER_BLOCKS < plain < led < hopeless <= 4 * plain + 4
    text = stream(6, 2, book=lost_in_all(), gain=2.0)
    assert 1 not in text.blocks(plain + 10)
    # Where who leads is slower than alone on this text, it is tried as beside nobody.
    text = stream(0, 2, book=lost_in_all(), gain=2.0)
    assert plain <= text.blocks(2 * plain).index(1) < plain + 40


def test_what_reads_a_long_history_for_long_is_tried_in_longer_sessions() -> None:
    """What its opening has cost in other sessions, by the tokens that it read there."""
    book = TrialBook()
    for _ in range(20):
        stream(2, leads=False, book=book, opening_blocks=12, history_tokens=1000).blocks(60)
    none, short, long = (book.rest_blocks(("n", "0"), 2.0, 1.0, read) for read in (0, 500, 20_000))
    assert none == short == 0
    # 12 tokens' time of 1,000 that it read; and one in two is saved, at best, in nearly all texts.
    assert 2 * 240 < long < 3 * 240
    text = stream(2, hopes=(2.0,), leads=False, book=book, history_tokens=20_000)
    assert 0 not in text.blocks(long)
    assert text.blocks(60)[-1] == 0


def test_what_was_lost_is_forgotten_in_time() -> None:
    now = 0.0
    book = TrialBook(lambda: now)
    for _ in range(20):
        book.session_begun()
        book.lost(("n", "0"))
        book.tokens_made(1)
    assert book.rest_blocks(("n", "0"), 4.0) > ANSWER_BLOCKS
    now = KEPT_SECONDS
    book.session_begun()
    assert book.rest_blocks(("n", "0"), 4.0) == 0


def test_what_fails_has_lost_no_trial() -> None:
    """The breaker shuts it out, for as long as that takes."""
    book = TrialBook()
    text = stream(2, 6, book=book)
    text.blocks(60)
    text.broken = frozenset({1})
    state = text.roster.rivals[1].state
    state.breaker = state.breaker.after_fault(DraftFaultKind.UNREACHABLE, 0.0)
    before = book._records[text.roster.rivals[1].key]
    text.blocks(20)
    assert book._records[text.roster.rivals[1].key] == before
