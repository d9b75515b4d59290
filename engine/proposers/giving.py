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
PIECE_BYTES = 1 << 20
"""Of each other piece: a quarter of what a message holds, half a millisecond to copy."""


@dataclass(frozen=True, slots=True)
class Giving:
    """What one session's verifier gives to one drafter of its weights.

    `read(first, end)` is `Session.keys_values`, in the verifier's thread. Nothing is given of
    histories of more than `most` tokens.
    """

    read: Callable[[int, int], Awaitable[KeysValues | None]]
    most: int

    async def give(
        self,
        history: Sequence[int],
        known: int,
        drafted: int,
        put: Callable[[Sequence[int], KeysValues], Coroutine[None, None, None]],
    ) -> None:
        """Has `put` what the drafter of the first `known` tokens has not read of `history`.

        That is each time the next tokens, with their keys and values; not the last one, which has
        none yet. Nothing where the drafter has drafted most of it, `drafted` tokens at the last
        time, and from where on the verifier has not got all. Raises what `put` raises.
        """
        end = len(history) - 1
        if len(history) > self.most or end - known <= drafted + FEW:
            return
        first, count = known, FIRST_POSITIONS
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
                count = max(1, PIECE_BYTES * (behind - first) // _byte_count(numbers))
                first = behind
        finally:
            if putting is not None:
                await _ended(putting)


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
