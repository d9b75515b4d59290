"""The proposers of one session, and which of them drafts now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kakeya_fleet.engine.contracts.draft import DraftSource, ProposerKey
from kakeya_fleet.engine.speculation.contest import (
    TRIAL_BLOCKS,
    Candidate,
    Contest,
    Paces,
    alone_seconds,
)
from kakeya_fleet.engine.speculation.generation_report import DropReason
from kakeya_fleet.engine.speculation.hedging import HedgeBudget
from kakeya_fleet.engine.speculation.pace import FIRST_RETRY_BLOCKS, WON_TOKENS
from kakeya_fleet.engine.speculation.state import SpeculationState
from kakeya_fleet.engine.speculation.trial_book import TrialBook

NOBODY: ProposerKey = ("", "")
"""A proposer that no fleet knows, as a loop has one that is no session of a node."""


@dataclass(slots=True)
class Rival:
    """A proposer that the session could use, and what was learned of it.

    `hope` is how many times as fast as decoding alone it may be at best. Its `source`
    may be replaced between two generations. One that `stands_in` is tried only while the leader
    cannot draft. One `apart` drafts on another machine than the verifier's.
    """

    key: ProposerKey
    source: DraftSource
    state: SpeculationState
    hope: float = 1.0
    stands_in: bool = False
    apart: bool = False


class Roster:
    """Outlives the session's generations; pass the same one to each.

    The first rival leads from the start when `leads`; otherwise the verifier begins
    alone.
    """

    def __init__(
        self,
        rivals: Sequence[Rival],
        *,
        leads: bool = True,
        book: TrialBook | None = None,
        gain: float = 1.0,
        history_tokens: int = 0,
    ) -> None:
        """`book` has what came of trials in other sessions, and hears of those of this one.

        Without one the session finds out all by itself. `gain` is how many times as fast as
        decoding alone the one that leads is expected to be. `history_tokens` are there when it
        begins: who is to be tried soon reads them.
        """
        self._rivals = tuple(rivals)
        self._book = book
        self._history_tokens = history_tokens
        self._opening_tokens = 0.0
        """What opening the source of the one that is to be tried has cost, in tokens' time."""
        self._came = False
        """Whether the block before was made with a draft."""
        self._told: dict[int, bool] = {}
        """Who was faster here and who was not, as the book was told."""
        self.hedges = HedgeBudget()
        rests = [_rest(book, rival, history_tokens) for rival in rivals]
        if book is not None and leads and rivals:
            rests[0] = max(rests[0], book.owed_blocks(rivals[0].key, history_tokens))
        candidates = tuple(
            Candidate(
                rival.hope,
                wait=rest,
                # The one that leads has this very gain, and comes back as any that has led.
                wait_for_leader=(
                    _rest(book, rival, history_tokens, gain) if leads and index else 0
                ),
                stands_in=rival.stands_in,
            )
            for index, (rival, rest) in enumerate(zip(rivals, rests, strict=True))
        )
        self._contest = Contest(candidates, leader=0 if leads and rivals else None)
        if leads and rivals:
            rivals[0].state.pace = replace(rivals[0].state.pace, expected_gain=gain)
        if leads and rivals and rests[0]:
            rivals[0].state.pace = rivals[0].state.pace.resting(rests[0], FIRST_RETRY_BLOCKS)
        if book is not None:
            book.session_begun()
        self._stood = self._standing()

    @classmethod
    def of_one(cls, source: DraftSource, state: SpeculationState | None = None) -> Roster:
        """A session's only proposer."""
        return cls([Rival(NOBODY, source, state or SpeculationState())])

    @property
    def rivals(self) -> tuple[Rival, ...]:
        """All proposers, in the order of their indices."""
        return self._rivals

    @property
    def current(self) -> int | None:
        """Index of the one that drafts the next block; None for nobody."""
        return self._contest.current

    @property
    def warming(self) -> int | None:
        """Index of the one whose source is to be opened for its trial; None for nobody."""
        return self._contest.warming

    @property
    def drafting(self) -> Rival | None:
        """The one that drafts the next block, or would, if its pace did not rest."""
        current = self.current
        return None if current is None else self._rivals[current]

    @property
    def second(self) -> int | None:
        """Index of whom to ask too when the leader is late; None for nobody.

        The most promising one that is sound and drafts from committed tokens alone: it needs
        nothing that was computed for another proposer. None beside a trial, which is judged.
        """
        if self.current is None or self.is_trying:
            return None
        able = [
            index
            for index, rival in enumerate(self._rivals)
            if index not in (self.current, self.warming)
            and rival.source.drafts_ahead
            and rival.state.breaker.closed
        ]
        return max(able, key=lambda index: self._rivals[index].hope, default=None)

    @property
    def is_trying(self) -> bool:
        """Whether that one is on trial."""
        return self._contest.is_warm

    @property
    def is_resting(self) -> bool:
        """Whether no draft is asked for now: nobody leads, or the leader is too slow."""
        drafting = self.drafting
        return drafting is None or drafting.state.pace.dropped

    @property
    def rest_blocks(self) -> int:
        """How many blocks are made from now on without a draft, as far as is known; 0 for none.

        While nobody leads, as many as a trial may take: who is to be tried is looked for then.
        """
        if self.warming is not None or not self.is_resting:
            return 0
        drafting = self.drafting
        return TRIAL_BLOCKS if drafting is None else drafting.state.pace.rest_blocks

    @property
    def drop_reason(self) -> DropReason | None:
        """Why the session decodes alone now, though it has a proposer; None when it does not."""
        drafting = self.drafting
        return None if drafting is None or self.is_trying else drafting.state.drop_reason

    def know_alone(self, seconds: float) -> None:
        """Other sessions found what a token takes alone; 0 where none did.

        Beside a proposer of this machine it takes longer than that.
        """
        for rival in self._rivals:
            if rival.apart:
                rival.state.pace = rival.state.pace.knowing_alone(seconds)

    def warmed(self, *, drafted: bool, read_tokens: int = 0) -> None:
        """The source of `warming` was opened, read so many, and drafted or failed."""
        index = self.warming
        if self._book is not None and index is not None and drafted:
            key = self._rivals[index].key
            self._book.opened(key, self._opening_tokens, read_tokens)
        if drafted:
            self._take(*self._contest.warmed(self._paces()))
        else:
            self._contest = self._contest.not_warmed()

    def after_draft(self, token_count: int) -> None:
        """A block of so many tokens was made with `current`'s draft, of which its state knows."""
        self._came = True
        self._made(1, token_count, failed=False)

    def after_alone(self, verify_seconds: Sequence[float], other_seconds: float) -> None:
        """Tokens were made without a draft, each in so long, all in `other_seconds` besides.

        One for whose draft `current` was asked in vain, or any number that nobody was asked for.
        """
        failed = not self.is_resting
        opening = self.warming
        alone = alone_seconds(self._paces())
        if opening is not None and alone:
            seconds = sum(verify_seconds) + other_seconds
            self._slowed(opening, seconds / alone - len(verify_seconds))
        for index, rival in enumerate(self._rivals):
            state = rival.state
            # One that is shut out is not resting.
            if index != self.current or state.pace.dropped:
                state.pace = state.pace.after_alone(
                    verify_seconds,
                    other_seconds,
                    beside_opening=opening is not None,
                    behind_draft=self._came,
                )
        self._came = False
        self._made(len(verify_seconds), len(verify_seconds), failed=failed)

    def _made(self, block_count: int, token_count: int, *, failed: bool) -> None:
        """So many blocks were, of which all paces know."""
        opening = self.warming
        if len(self._rivals) > 1 or self._contest.leader is None:
            self._take(
                *self._contest.after_block(
                    self._paces(), failed=failed, barred=self._barred(), count=block_count
                )
            )
        if self.warming != opening:
            self._opening_tokens = 0.0
        self._note(token_count)

    def _slowed(self, opening: int, tokens: float) -> None:
        """Blocks beside the source that is opened took the time of so many more tokens."""
        self._opening_tokens += tokens
        if self._book is not None:
            self._book.gained(self._rivals[opening].key, -tokens)

    def _standing(self) -> tuple[int | None, int | None]:
        """Who leads and does not rest, and who is on trial."""
        contest = self._contest
        leader = contest.leader
        if leader is not None and self._rivals[leader].state.pace.given_up:
            leader = None
        return leader, contest.trial if contest.is_warm else None

    def _note(self, token_count: int) -> None:
        """Tells the book what a block has changed."""
        before, self._stood = self._stood, self._standing()
        if self._book is None:
            return
        self._book.tokens_made(token_count)
        for rival in self._rivals:
            pace = rival.state.pace
            if pace.untold_tokens:
                self._book.gained(rival.key, pace.untold_tokens)
                rival.state.pace = pace.told()
        leader, trial = self._stood
        for index in before:
            # What a breaker shuts out has failed, and may have been fast.
            if index not in (None, leader, trial) and self._rivals[index].state.breaker.closed:
                self._tell(index, was_faster=False)
        if leader is not None and self._rivals[leader].state.pace.lost_tokens <= -WON_TOKENS:
            self._tell(leader, was_faster=True)

    def _barred(self) -> list[int]:
        """Those whose trials have cost other sessions too much to be tried in this one now."""
        book = self._book
        if book is None or self._contest.trial is not None:
            return []
        return [
            index
            for index, rival in enumerate(self._rivals)
            if not rival.stands_in and book.owed_blocks(rival.key, self._history_tokens)
        ]

    def _tell(self, index: int, *, was_faster: bool) -> None:
        """Once, however often that is found on this text; that it was faster says more."""
        if (
            self._book is None
            or self._told.get(index, False)
            or self._told.get(index) is was_faster
        ):
            return
        self._told[index] = was_faster
        key = self._rivals[index].key
        if was_faster:
            self._book.won(key)
        else:
            self._book.lost(key)

    def _paces(self) -> Paces:
        return tuple(rival.state.pace for rival in self._rivals)

    def _take(self, contest: Contest, paces: Paces) -> None:
        self._contest = contest
        for rival, pace in zip(self._rivals, paces, strict=True):
            if pace is not rival.state.pace:
                rival.state.pace = pace


def _rest(book: TrialBook | None, rival: Rival, history_tokens: int, gain: float = 1.0) -> int:
    """How many blocks a session that begins leaves it alone for."""
    if book is None or rival.stands_in:
        return 0
    return book.rest_blocks(rival.key, rival.hope, gain, history_tokens)
