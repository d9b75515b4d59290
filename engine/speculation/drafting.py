"""The drafts of one generation, from whichever of the session's proposers drafts now.

Proposers change between two blocks only. The source of one that is to be tried is
opened beside the blocks before its trial: what opening takes, or a proposer that never
answers, costs the stream nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from kakeya_fleet.engine.sessions.history import Prefix
from kakeya_fleet.engine.sessions.step import Step
from kakeya_fleet.engine.sessions.turns import Verified
from kakeya_fleet.engine.speculation.contest import TRIAL_BLOCKS
from kakeya_fleet.engine.speculation.drafter import (
    NO_DRAFT,
    BlockDraft,
    Drafter,
    DraftingLimits,
    taken_back,
)
from kakeya_fleet.engine.speculation.first_draft import first_draft
from kakeya_fleet.engine.speculation.roster import Roster
from kakeya_fleet.engine.speculation.tally import Tally

WARMING_ASKS = TRIAL_BLOCKS
"""Blocks that one is asked before, that is to be tried, until it has anything to draft."""


class Drafting:
    """One generation's drafters, one a proposer. At most one draft is verified at a time."""

    def __init__(
        self,
        roster: Roster,
        limits: DraftingLimits,
        tally: Tally,
        clock: Callable[[], float],
    ) -> None:
        self._roster = roster
        self._clock = clock
        self._drafters = [
            Drafter(rival.source, rival.state, limits, tally, clock) for rival in roster.rivals
        ]
        self._deadline_seconds = limits.deadline_seconds
        self._is_adaptive = limits.adaptive
        self._tally = tally
        self._asked: Drafter | None = None
        self._drafted_by: Drafter | None = None
        self._was_wanted = False
        self._warming: tuple[int, asyncio.Task[bool | None]] | None = None
        self._warming_asks = 0
        self._last_block_at: float | None = None

    async def next_draft(self, history: Prefix, most: int, seconds_left: float) -> BlockDraft:
        """A draft of at most `most` >= 1 tokens behind `history`; see `Drafter.next_draft`."""
        await self._warm(history)
        self._was_wanted = True
        current = self._roster.current
        before, self._asked = self._asked, None if current is None else self._drafters[current]
        if before is not None and before is not self._asked:
            await before.close()
        self._drafted_by = self._asked
        if current is None or self._asked is None:
            return NO_DRAFT
        draft = await self._first(self._asked, history, most, seconds_left)
        if draft.received:
            self._roster.hedges.earn()
        proposer = self._roster.rivals[current].key if draft.received else None
        return draft if draft.hedged else replace(draft, proposer=proposer)

    def draft_ahead(self, history: Prefix, assumed: Sequence[int], most: int) -> None:
        """Has the same proposer draft behind `assumed`; see `Drafter.draft_ahead`."""
        if self._asked is not None:
            self._asked.draft_ahead(history, assumed, most)

    def after_block(self, draft: BlockDraft, step: Step, verify_seconds: float) -> None:
        """Learns from a verified block, and chooses who drafts the next one."""
        meanwhile = draft.meanwhile
        known_seconds = verify_seconds + draft.wait_seconds + meanwhile.seconds
        other_seconds = self._other_seconds(known_seconds)
        was_wanted, self._was_wanted = self._was_wanted, False
        # The last token of a generation needs no draft: that none came says nothing.
        if not was_wanted and not self._roster.is_resting:
            return
        if draft.received and self._drafted_by is not None:
            self._drafted_by.after_block(_as_asked(draft), step, verify_seconds, other_seconds)
        if draft.received:
            self._roster.after_draft(meanwhile.token_count + len(step.committed))
        else:
            self._roster.after_alone([verify_seconds], other_seconds)

    def after_overtaken(self, draft: BlockDraft, latest: Verified) -> None:
        """Learns from a draft of which nothing was left, `latest` the last token decoded since.

        As if that had been its block.
        """
        meanwhile = draft.meanwhile
        before = replace(
            meanwhile,
            token_count=meanwhile.token_count - len(latest.step.committed),
            seconds=max(0.0, meanwhile.seconds - latest.seconds),
        )
        self.after_block(replace(draft, meanwhile=before), latest.step, latest.seconds)

    @property
    def goes_on(self) -> bool:
        """Whether tokens are decoded while a draft is on its way, from another machine."""
        current = self._roster.drafting
        if not self._is_adaptive or current is None or not current.apart:
            return False
        return not current.state.pace.waits

    @property
    def rest_blocks(self) -> int:
        """How many tokens are made from now on without asking anybody for a draft; 0 for none."""
        return 0 if self._warming is not None else self._roster.rest_blocks

    def after_rest(self, decoded: Sequence[Verified]) -> None:
        """Learns from tokens that were decoded while it rests, and told together."""
        seconds: list[float] = []
        for each in decoded:
            # What a grammar forces comes with its token: all took the time of one forward.
            count = len(each.step.committed)
            seconds += [each.seconds / count] * count
        self._roster.after_alone(seconds, self._other_seconds(sum(seconds)))

    def after_rest_for_all(self, decoded: Sequence[Verified]) -> None:
        """Tokens were decoded without a draft for the sake of others: that says nothing of it."""
        self._other_seconds(sum(each.seconds for each in decoded))

    async def close(self) -> None:
        """Takes back the drafts in flight; no task is left when this returns."""
        warming, self._warming = self._warming, None
        if warming is not None:
            await taken_back(warming[1])
        for drafter in self._drafters:
            await drafter.close()

    async def _first(
        self, leader: Drafter, history: Prefix, most: int, seconds_left: float
    ) -> BlockDraft:
        """The leader's draft; that of a second proposer where the leader is late and it is first.

        Both draft behind the same committed tokens, and the stream waits no longer for both than
        for one.
        """
        index, delay = self._roster.second, leader.late_after()
        longest = min(self._deadline_seconds, seconds_left)
        if index is None or delay is None or delay >= longest:
            return await leader.next_draft(history, most, seconds_left)
        began, rival, drafter = self._clock(), self._roster.rivals[index], self._drafters[index]

        def may_ask() -> bool:
            asks = rival.state.breaker.closed and self._roster.hedges.spend()
            self._tally.hedge_count += asks
            return asks

        async def second() -> BlockDraft:
            draft = await drafter.second_draft(history, most, longest - delay)
            return replace(draft, proposer=rival.key, hedged=True) if draft.received else draft

        draft = await first_draft(
            lambda: leader.next_draft(history, most, seconds_left), second, delay, may_ask
        )
        if draft.hedged:
            leader.gave_up(self._clock() - began)
            self._tally.hedge_won_count += 1
            self._drafted_by = drafter
        return draft

    async def _warm(self, history: Prefix) -> None:
        """Opens the source of the one that is to be tried, and tells when it has drafted."""
        index, warming = self._roster.warming, self._warming
        if warming is not None and warming[0] != index:
            self._warming, self._warming_asks = None, 0
            await taken_back(warming[1])
        elif warming is not None and warming[1].done():
            self._warming, drafted = None, warming[1].result()
            if drafted is not False or self._warming_asks >= WARMING_ASKS:
                self._warming_asks = 0
                self._roster.warmed(drafted=bool(drafted), read_tokens=len(history))
        if self._warming is None and index is not None and index == self._roster.warming:
            self._warming_asks += 1
            task = asyncio.ensure_future(self._drafters[index].opened(history))
            self._warming = (index, task)

    def _other_seconds(self, known_seconds: float) -> float:
        """What of a block's time went neither into its forward nor into waiting for its draft.

        Handling messages and handing out tokens. A client that reads slowly, or a
        hiccup, counts as no more than those; the first block of a generation has
        nothing to be measured from.
        """
        before, self._last_block_at = self._last_block_at, self._clock()
        if before is None:
            return 0.0
        return min(max(0.0, self._last_block_at - before - known_seconds), known_seconds)


def _as_asked(draft: BlockDraft) -> BlockDraft:
    """A hedge as its own proposer is judged: what the first one was waited for is not its doing."""
    if not draft.hedged:
        return draft
    return replace(
        draft, wait_seconds=min(draft.wait_seconds, draft.draft_seconds + draft.wire_seconds)
    )
