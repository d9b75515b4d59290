"""The draft of the next block, on its way while the tokens of the one before are handed out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from kakeya_fleet.engine.sessions.history import History, Prefix
from kakeya_fleet.engine.speculation.drafter import NO_DRAFT, BlockDraft, taken_back
from kakeya_fleet.engine.speculation.drafting import Drafting
from kakeya_fleet.engine.speculation.meanwhile import caught_up
from kakeya_fleet.engine.speculation.tally import Tally


class Asking:
    """One generation's: at most one draft is asked for at a time."""

    def __init__(self, clock: Callable[[], float], tally: Tally) -> None:
        """`tally` hears of drafted tokens that were decoded before the draft came."""
        self._clock = clock
        self._tally = tally
        self._asked: asyncio.Future[BlockDraft] | None = None
        self._behind, self._asked_at = 0, 0.0

    @property
    def is_asked(self) -> bool:
        """Whether a draft was asked for, and not taken yet."""
        return self._asked is not None

    @property
    def is_on_its_way(self) -> bool:
        """Whether it is, and is not there."""
        return self._asked is not None and not self._asked.done()

    def ask(self, drafting: Drafting, history: Prefix, most: int, seconds_left: float) -> None:
        """Asks for one of at most `most` >= 1 tokens behind `history`; see `Drafting`."""
        self._behind, self._asked_at = len(history), self._clock()
        self._asked = asyncio.ensure_future(drafting.next_draft(history, most, seconds_left))

    def when_there(self, call: Callable[[asyncio.Future[BlockDraft]], object]) -> None:
        """Calls once the draft that is asked for has come, or failed."""
        if self._asked is not None:
            self._asked.add_done_callback(call)

    def is_overtaken(self, history: History) -> bool:
        """Whether it has come, and nothing of it is left behind `history`, which is longer now."""
        asked = self._asked
        if asked is None or not asked.done() or asked.cancelled() or asked.exception() is not None:
            return False
        draft, decoded = asked.result(), history[self._behind :]
        return draft.received and bool(decoded) and not caught_up(draft.token_ids, decoded, 0.0)[0]

    async def taken(self, history: History) -> BlockDraft:
        """The draft, with the seconds that the verifier waits for it; none if none was asked for.

        Of one behind which more was decoded, what is left behind `history`.
        """
        asked = self._asked
        if asked is None:
            return NO_DRAFT
        began = self._clock()
        try:
            # Cancelling this takes the draft back, and waits for its end.
            draft = await asked
        finally:
            self._asked = None
        draft = replace(draft, wait_seconds=self._clock() - began)
        decoded = history[self._behind :]
        if not decoded or not draft.received:
            return draft
        left, meanwhile = caught_up(draft.token_ids, decoded, began - self._asked_at)
        self._tally.add_passed(draft.proposer, meanwhile)
        return replace(draft, token_ids=left, meanwhile=meanwhile)

    async def close(self) -> None:
        """Takes back the draft that is on its way."""
        asked, self._asked = self._asked, None
        if asked is not None:
            await taken_back(asked)
