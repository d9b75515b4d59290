"""Which of a session's proposers drafts, as measured on the session's own stream.

One proposer leads: the one that was planned, or none, so that the verifier decodes
alone. Another is put on **trial** when at best it could be faster: with h, what it is
predicted to give at the upper end of its acceptance over what the verifier gives
alone, and with the measured seconds a token s_lead and s_alone,

    s_alone / h < s_lead.

A trial's blocks are the session's own, judged by the pace of the one on trial, whose
cumulative sum now counts the tokens that the leader would have made in the same time:
the trial is lost when `TRIAL_TOKENS` were, or after `TRIAL_BLOCKS` without a verdict,
and won when five were gained (`WON_TOKENS` + `LOST_TOKENS` - `TRIAL_TOKENS`). Who won
leads, and is judged against the former leader's measured pace, to which it gives way
when it loses as much: so the leader changes with the text. Who lost rests 16 blocks,
then 32, up to 1,024; and who has lost a trial is not tried again before what trials have lost
so far is at most `TRIAL_SHARE` of the session's blocks. So each is tried once, soon, and then one
that loses little, as prompt lookup does where it finds nothing, often, and one that loses much
seldom.

What all trials cost: with k proposers besides the leader, and b the tokens that the
leader makes in the time of one block on trial, at most

    (k + 1) (TRIAL_TOKENS + b) + (1 + b / TRIAL_TOKENS) TRIAL_SHARE n

tokens' time in n blocks in which the leader stays the best.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kakeya_fleet.engine.speculation.pace import (
    FIRST_RETRY_BLOCKS,
    LONGEST_RETRY_BLOCKS,
    LOST_TOKENS,
    WON_TOKENS,
    Pace,
)

# Tokens that a trial may lose against the leader, and the blocks it may take: a little
# more than drops a leader, since text that is copied comes in bursts.
TRIAL_TOKENS = 4.0
TRIAL_BLOCKS = 12
TRIAL_SHARE = 0.05
# Blocks of the session before the first trial; a leader that drafts is measured against
# decoding alone before.
FIRST_TRIAL_AT = 4

Paces = tuple[Pace, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposer that the session could use.

    `hope` is how many times as fast as decoding alone it may be at best. It drafted
    last `rested` blocks ago, and is not tried before `wait`, nor before `wait_for_leader` while
    another one leads; a trial that it loses makes `wait` the `interval`, and doubles that. One
    that `stands_in` is tried only while the leader cannot draft.
    """

    hope: float
    rested: int = 0
    wait: int = 0
    wait_for_leader: int = 0
    interval: int = FIRST_RETRY_BLOCKS
    stands_in: bool = False

    def after_blocks(self, count: int) -> Candidate:
        """So many blocks were made without it."""
        return replace(self, rested=self.rested + count)

    def lost(self) -> Candidate:
        """It lost a trial, or the lead soon after it got it."""
        longer = min(2 * self.interval, LONGEST_RETRY_BLOCKS)
        return replace(self, rested=0, wait=self.interval, interval=longer)

    def relieved(self) -> Candidate:
        """It led for long: others are better now, and it may be again."""
        return replace(self, rested=0, wait=FIRST_RETRY_BLOCKS, interval=2 * FIRST_RETRY_BLOCKS)


@dataclass(frozen=True, slots=True)
class Contest:
    """The candidates of one session, by index. A value: events return the next one.

    Each event also returns the paces, in the order of the candidates, as it leaves
    them. `runner_up` led before the leader did. `trial` drafts once `is_warm`: a
    source that opens slowly, or never, takes no block's time. The leader took
    `led_token_seconds` a token before that: the blocks beside which it opens may be slower, on
    a machine that both share. `led_blocks` and `trial_blocks` were drafted by the leader and by
    the one on trial. Trials that were not won have lost `lost_tokens` so far.
    """

    candidates: tuple[Candidate, ...]
    leader: int | None = None
    runner_up: int | None = None
    trial: int | None = None
    is_warm: bool = False
    led_token_seconds: float = 0.0
    led_blocks: int = 0
    trial_blocks: int = 0
    block_count: int = 0
    lost_tokens: float = 0.0

    @property
    def current(self) -> int | None:
        """Who drafts the next block, None for nobody; the leader's pace may still rest."""
        return self.trial if self.is_warm else self.leader

    @property
    def warming(self) -> int | None:
        """Whose source is to be opened for its trial."""
        return None if self.is_warm else self.trial

    def warmed(self, paces: Paces) -> tuple[Contest, Paces]:
        """The source of the one that is to be tried has drafted."""
        if self.trial is None:
            return self, paces
        drafts = _leads(self, paces)
        rival_seconds = _reference(self, paces, drafts=drafts)
        if drafts and self.led_token_seconds:
            rival_seconds = min(rival_seconds, self.led_token_seconds)
        pace = paces[self.trial].on_trial(rival_seconds, tokens=TRIAL_TOKENS)
        return replace(self, is_warm=True, trial_blocks=0), _with(paces, self.trial, pace)

    def not_warmed(self) -> Contest:
        """It has not."""
        return _without_trial(self)

    def after_block(
        self, paces: Paces, *, failed: bool, barred: Collection[int] = (), count: int = 1
    ) -> tuple[Contest, Paces]:
        """A block was made; `current` was asked for its draft in vain if it `failed`.

        Or `count` of them, that nobody was asked for. `paces` have learned of it. A leader that
        rests is asked for none. No trial of those that are `barred` begins now.
        """
        aged = _aged(self, count)
        if aged.is_warm:
            return _trial_judged(aged, paces, failed=failed)
        drafts = not failed and _leads(self, paces)
        aged, paces = _lead_judged(aged, paces, drafts=drafts)
        if aged.trial is None:
            trial = _next_trial(aged, paces, drafts=drafts, barred=barred)
            seconds = _reference(aged, paces, drafts=drafts) if drafts else 0.0
            aged = replace(aged, trial=trial, led_token_seconds=seconds)
        return aged, paces


def _aged(contest: Contest, count: int) -> Contest:
    """So many more blocks were made."""
    current = contest.current
    return replace(
        contest,
        candidates=tuple(
            each if index == current else each.after_blocks(count)
            for index, each in enumerate(contest.candidates)
        ),
        block_count=contest.block_count + count,
        trial_blocks=contest.trial_blocks + count * contest.is_warm,
        led_blocks=contest.led_blocks + count * (not contest.is_warm),
    )


def _leads(contest: Contest, paces: Paces) -> bool:
    """Whether a proposer leads, and does not rest."""
    return contest.leader is not None and not paces[contest.leader].dropped


def _trial_judged(contest: Contest, paces: Paces, *, failed: bool) -> tuple[Contest, Paces]:
    trial = contest.trial
    if trial is None:
        return contest, paces
    pace = paces[trial]
    if not failed and not pace.given_up:
        if pace.lost_tokens <= -WON_TOKENS:
            return _trial_won(contest, trial, paces)
        if contest.trial_blocks < TRIAL_BLOCKS:
            return contest, paces
    lost = TRIAL_TOKENS if pace.given_up else pace.lost_tokens - LOST_TOKENS + TRIAL_TOKENS
    contest = replace(contest, lost_tokens=contest.lost_tokens + max(0.0, lost))
    return _without_trial(contest), _with(paces, trial, pace.taken_up())


def _trial_won(contest: Contest, winner: int, paces: Paces) -> tuple[Contest, Paces]:
    former, drafted = contest.leader, _leads(contest, paces)
    changed = replace(
        contest,
        leader=winner,
        runner_up=former if drafted else None,
        trial=None,
        is_warm=False,
        led_blocks=0,
    )
    rival_seconds = 0.0
    if former is not None:
        changed = _changed(changed, former, _fallen(contest, former))
        rival_seconds = paces[winner].rival_seconds if drafted else 0.0
    return changed, _with(paces, winner, paces[winner].against(rival_seconds))


def _lead_judged(contest: Contest, paces: Paces, *, drafts: bool) -> tuple[Contest, Paces]:
    """Gives the lead back to the runner-up when the leader fell behind it, or cannot draft."""
    leader, runner_up = contest.leader, contest.runner_up
    if leader is None or runner_up is None or drafts:
        return contest, paces
    pace = paces[leader]
    if _probes(pace):
        return contest, paces
    if pace.alone_seconds and pace.rival_seconds >= pace.alone_seconds:
        # Both are slower than alone: its next retry is judged against that.
        return replace(contest, runner_up=None), _with(paces, leader, pace.against(0.0))
    trial = None if contest.trial == runner_up else contest.trial
    changed = replace(contest, leader=runner_up, runner_up=None, trial=trial, led_blocks=0)
    paces = _with(paces, leader, pace.taken_up())
    return (
        _changed(changed, leader, _fallen(contest, leader)),
        _with(paces, runner_up, paces[runner_up].taken_up()),
    )


def _fallen(contest: Contest, index: int) -> Candidate:
    """A former leader: one that led for no longer than it rested before has lost a trial."""
    candidate = contest.candidates[index]
    return candidate.relieved() if contest.led_blocks > candidate.wait else candidate.lost()


def _next_trial(
    contest: Contest, paces: Paces, *, drafts: bool, barred: Collection[int]
) -> int | None:
    """Who is tried now: of those that are due and could win the most promising."""
    leader = contest.leader
    if contest.block_count < FIRST_TRIAL_AT or (leader is not None and _probes(paces[leader])):
        return None
    can_afford = contest.lost_tokens <= TRIAL_SHARE * contest.block_count
    alone = alone_seconds(paces)
    reference = _reference(contest, paces, drafts=drafts)
    due = [
        index
        for index, each in enumerate(contest.candidates)
        if index != leader
        and index not in barred
        and each.rested >= (max(each.wait, each.wait_for_leader) if drafts else each.wait)
        and (can_afford or not each.wait)
        and alone < each.hope * reference
        and not (drafts and each.stands_in)
    ]
    return max(due, key=lambda index: contest.candidates[index].hope, default=None)


def _probes(pace: Pace) -> bool:
    """Whether it pauses to measure what decoding alone takes."""
    return pace.dropped and not pace.given_up


def _reference(contest: Contest, paces: Paces, *, drafts: bool) -> float:
    """Measured seconds a token of what the session does now; 0 while that is unknown."""
    alone = alone_seconds(paces)
    if drafts and contest.leader is not None and alone:
        return paces[contest.leader].token_seconds
    return alone


def _without_trial(contest: Contest) -> Contest:
    """The trial was lost."""
    trial = contest.trial
    ended = replace(contest, trial=None, is_warm=False)
    return ended if trial is None else _changed(ended, trial, contest.candidates[trial].lost())


def _changed(contest: Contest, index: int, candidate: Candidate) -> Contest:
    candidates = list(contest.candidates)
    candidates[index] = candidate
    return replace(contest, candidates=tuple(candidates))


def alone_seconds(paces: Sequence[Pace]) -> float:
    """What a token takes alone, as far as any of the paces knows; 0 while none does."""
    return max((pace.alone_seconds for pace in paces), default=0.0)


def _with(paces: Paces, index: int, pace: Pace) -> Paces:
    return (*paces[:index], pace, *paces[index + 1 :])
