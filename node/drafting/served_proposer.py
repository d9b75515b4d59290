"""A proposer as a node serves it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from engine.proposers.contract import Proposer
from engine.running import Result, Runner
from fleet.card import ModelOffer

# A step that takes in more tokens leaves the event loop; a lookup takes some 5 us a token.
INLINE_TOKENS = 512


async def run_in_thread(step: Callable[[], Result], /) -> Result:
    """The `Runner` of a long step of a proposer without a thread of its own."""
    running = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # It cannot be taken back, and nobody may touch its state before it ended.
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((running,))
        running.exception()
        raise


async def _nothing_to_close() -> None:
    return


@dataclass(frozen=True, slots=True)
class ServedProposer:
    """A loaded proposer, its offer, and what runs its steps.

    A lookup of microseconds runs inline on the event loop, and with `run_long`
    when it has much to take in; a model has a thread, which is both. `close` ends
    that thread.
    """

    proposer: Proposer
    offer: ModelOffer
    run: Runner
    run_long: Runner
    close: Callable[[], Awaitable[None]] = _nothing_to_close

    def runner(self, token_count: int) -> Runner:
        """What runs a step that takes in `token_count` tokens."""
        return self.run if token_count <= INLINE_TOKENS else self.run_long
