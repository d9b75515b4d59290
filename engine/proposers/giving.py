"""A drafter of its verifier's own weights is given what that has read, instead of reading it.

The keys and values of a history are a function of its tokens and of the weights: what the verifier
has of a prompt is what the drafter would compute, but for its fewer bits. Where both share the
cores of one machine, to copy them takes a tenth of the time that reading takes, and no bit is
rounded twice: what is drafted behind them is right more often. A drafter of another machine reads
by itself, on cores of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.raw_numbers import KeysValues

FEW = 8
"""Unread tokens that a drafter's next forward takes in as well as one."""
FIRST_POSITIONS = 4
"""Of the first piece: it tells what a position takes, of the largest models half a megabyte."""
WAIT_SECONDS = 0.1
"""Of the first draft for what it is given: a fraction of a draft's deadline, some 25 pieces."""
PIECE_BYTES, MOST_PIECE_BYTES = 1 << 20, 3 << 20
"""Of the next piece, and of those behind it: each takes half a millisecond a megabyte to copy, and
waits for its turn with the verifier. A message holds four."""


Put = Callable[[Sequence[int], KeysValues], Coroutine[None, None, None]]
"""Has a drafter take the next tokens of a history with their keys and values."""


@dataclass(frozen=True, slots=True)
class Giving:
    """What one session's verifier gives to one drafter of its weights.

    `read(first, end)` is `Session.keys_values`, in the verifier's thread. Nothing is given of
    histories of more than `most` tokens.
    """

    read: Callable[[int, int], Awaitable[KeysValues | None]]
    most: int

    def is_due(self, length: int, known: int, drafted: int) -> bool:
        """Whether a drafter that knows `known` tokens would have to read, of a history so long.

        Not what it has drafted itself, `drafted` tokens at the last time.
        """
        return length <= self.most and length - 1 - known > drafted + FEW

    async def give(self, history: Sequence[int], known: int, put: Put) -> None:
        """Has `put` what the drafter of the first `known` tokens has not read of `history`.

        That is each time the next tokens, with their keys and values; not the last one, which has
        none yet, and nothing from where on the verifier has not got all. Raises what `put` raises.
        """
        end = len(history) - 1
        first, count, size = known, FIRST_POSITIONS, PIECE_BYTES
        putting: asyncio.Task[None] | None = None
        try:
            while first < end:
                behind = min(end, first + count)
                numbers = await self.read(first, behind)
                if numbers is None:
                    break
                if putting is not None:
                    await putting
                # One piece is on its way while the next is copied.
                putting = asyncio.create_task(put(history[first:behind], numbers))
                count = max(1, size * (behind - first) // _byte_count(numbers))
                first, size = behind, MOST_PIECE_BYTES
        finally:
            if putting is not None:
                await _ended(putting)


class HistoryGiver:
    """Gives to one drafter what it would have to read. Belongs to the event loop's thread.

    One draft waits a moment for it; a long history goes beside the stream, which has no drafts
    meanwhile.
    """

    def __init__(self, giving: Giving | None) -> None:
        """Gives nothing where `giving` is None."""
        self._giving = giving
        self._task: asyncio.Task[None] | None = None
        self._drafted = 0
        self._given = 0
        """Tokens that the latest task gives, or gave, the ones before among them."""

    def gives(self, length: int) -> bool:
        """Whether a history of `length` tokens goes with its keys and values, once it has them."""
        return self._giving is not None and length <= self._giving.most

    async def given(self, history: Sequence[int], known: int, block_size: int, put: Put) -> bool:
        """Whether a draft of `block_size` tokens may be asked for; else more is on its way.

        `known` tokens of the history are known to the drafter, or on their way. Raises what `put`
        raised.
        """
        giving = self._giving
        if giving is None:
            return True
        if self._task is None:
            if not giving.is_due(len(history), known, self._drafted):
                self._drafted = block_size
                return True
            seconds = self._begin(giving, history, known, put)
        else:
            # What it waited for once goes on beside the stream.
            seconds = 0.0
        while (task := self._task) is not None:
            await asyncio.wait((task,), timeout=seconds)
            if not task.done():
                return False
            self._task = None
            task.result()
            if giving.is_due(len(history), self._given, 0):
                # What was committed meanwhile.
                seconds = self._begin(giving, history, self._given, put)
        self._drafted = block_size
        return True

    def _begin(self, giving: Giving, history: Sequence[int], known: int, put: Put) -> float:
        """Gives what lies behind `known`; how long a draft waits for that."""
        self._task = asyncio.create_task(giving.give(history, known, put), name="give-history")
        self._given = len(history) - 1
        return WAIT_SECONDS

    def drop(self) -> None:
        """Ends what is on its way, whose outcome is nobody's concern."""
        task, self._task, self._drafted = self._task, None, 0
        if task is not None:
            task.cancel()
            task.add_done_callback(_seen)

    async def close(self) -> None:
        """Ends it; nothing is put when this returns, to whomever of several that wait."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
            _seen(task)
            self._task = None


def _seen(task: asyncio.Task[None]) -> None:
    """Looks at how it ended, so that nobody misses its error."""
    if not task.cancelled():
        task.exception()


def _byte_count(numbers: KeysValues) -> int:
    return max(1, sum(each.nbytes for each in numbers))


async def _ended(putting: asyncio.Task[None]) -> None:
    """Waits for it; a caller that is cancelled takes it back. Raises what it raised."""
    try:
        await asyncio.wait((putting,))
    except asyncio.CancelledError:
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)
        raise
    putting.result()
