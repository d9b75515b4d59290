"""Two requests for one block: the first well-formed draft is taken, the other is taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from kakeya_fleet.engine.speculation.drafter import BlockDraft, taken_back

Ask = Callable[[], Coroutine[None, None, BlockDraft]]


async def first_draft(
    first: Ask, second: Ask, delay: float, may_ask: Callable[[], bool]
) -> BlockDraft:
    """The draft of `first`, or of `second`, which is asked when none came in `delay` seconds.

    `may_ask` is asked at that moment. A `first` that ends without a draft waits for a `second`
    that is under way. No task is left when this returns, or is cancelled; what either raises is
    raised.
    """
    race = _Race(second, may_ask)
    timer = asyncio.get_running_loop().call_later(delay, race.ask)
    try:
        # In this task: a draft in time, as most are, costs no turn of the event loop.
        draft = await race.unless_overtaken(first)
        return draft if draft.received else await race.second_draft(draft)
    finally:
        timer.cancel()
        await race.close()


class _Race:
    """What runs beside the first request."""

    def __init__(self, second: Ask, may_ask: Callable[[], bool]) -> None:
        self._second = second
        self._may_ask = may_ask
        self._task: asyncio.Task[BlockDraft] | None = None
        self._overtaken = asyncio.timeout(None)
        self._is_open = True

    def ask(self) -> None:
        """The first draft is late."""
        if self._may_ask():
            self._task = asyncio.ensure_future(self._second())
            self._task.add_done_callback(self._answered)

    async def unless_overtaken(self, first: Ask) -> BlockDraft:
        """The draft of `first`; that of the second when it comes before."""
        try:
            async with self._overtaken:
                draft = await first()
                self._is_open = False
                return draft
        except TimeoutError:
            if not self._overtaken.expired() or self._task is None:
                raise
            return self._task.result()
        finally:
            self._is_open = False

    async def second_draft(self, instead: BlockDraft) -> BlockDraft:
        """What the second request gives, `instead` when there is none."""
        return instead if self._task is None else await self._task

    async def close(self) -> None:
        """Takes back the second request."""
        if self._task is not None:
            await taken_back(self._task)

    def _answered(self, task: asyncio.Task[BlockDraft]) -> None:
        if not self._is_open or task.cancelled() or task.exception() is not None:
            return
        if task.result().received:
            self._overtaken.reschedule(asyncio.get_running_loop().time())
