"""A proposer as a node serves it."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from weakref import WeakSet

from kakeya_fleet.engine.contracts.blocking import Result, Runner
from kakeya_fleet.engine.contracts.draft import Proposer
from kakeya_fleet.engine.proposers.giving import Giving
from kakeya_fleet.engine.proposers.local_source import FeaturesSince, LocalDraftSource
from kakeya_fleet.engine.proposers.shared_forwards import DraftSteps, Sharing
from kakeya_fleet.fleet.cards.card import ModelOffer

# A step that takes in more tokens leaves the event loop; a lookup takes some 5 us a token.
INLINE_TOKENS = 512
# A model whose drafts take no longer drafts on the event loop: to wake its thread and to
# be woken by it takes 0.1 ms, several times that beside other threads.
INLINE_STEP_SECONDS = 3e-3
JUDGED_STEPS = 16
# Tokens or context vectors that such a step takes in at most; they take some 30 us each.
INLINE_VECTORS = 64


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


class ModelSteps:
    """Runs a model's steps in its thread, or inline while they are found to be quick.

    Quick is a model one of whose latest `JUDGED_STEPS` short steps took no more than
    `INLINE_STEP_SECONDS`: on a busy machine most take longer than they compute.
    Never two at once. Belongs to the event loop's thread.
    """

    def __init__(
        self, run_in_its_thread: Runner, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._run_in_its_thread = run_in_its_thread
        self._clock = clock
        self._elsewhere = 0
        self._latest = deque((math.inf,), JUDGED_STEPS)

    async def run(self, step: Callable[[], Result], /) -> Result:
        """The `Runner` of a short step, which may block the event loop while it runs."""

        def timed() -> Result:
            began = self._clock()
            try:
                return step()
            finally:
                self._latest.append(self._clock() - began)

        if self._elsewhere or min(self._latest) > INLINE_STEP_SECONDS:
            return await self.run_long(timed)
        return timed()

    async def run_long(self, step: Callable[[], Result], /) -> Result:
        """The `Runner` of a long step."""
        self._elsewhere += 1
        try:
            return await self._run_in_its_thread(step)
        finally:
            self._elsewhere -= 1


@dataclass(slots=True)
class _Uses:
    count: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ServedProposer:
    """A loaded proposer, its offer, and what runs its steps.

    A lookup of microseconds runs inline on the event loop, and with `run_long`
    when it takes in more than `inline_tokens`; a model has `ModelSteps`, and a thread,
    which `close` ends.
    """

    proposer: Proposer
    offer: ModelOffer
    run: Runner
    run_long: Runner
    close: Callable[[], Awaitable[None]] = _nothing_to_close
    inline_tokens: int = INLINE_TOKENS
    sharing: Sharing | None = None
    """Of a model whose drafts share forwards."""
    withdrawn: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it is served no more."""
    _sources: WeakSet[LocalDraftSource] = field(default_factory=WeakSet)
    _uses: _Uses = field(default_factory=_Uses)

    @property
    def drafts_here(self) -> bool:
        """Whether it drafts for a session of this node."""
        return bool(self._sources)

    @property
    def use_count(self) -> int:
        """How often somebody began to use it."""
        return self._uses.count

    def used(self) -> None:
        """Somebody begins to."""
        self._uses.count += 1

    def runner(self, token_count: int) -> Runner:
        """What runs a step that takes in `token_count` tokens or context vectors."""
        return self.run if token_count <= self.inline_tokens else self.run_long

    def steps(self) -> DraftSteps:
        """What runs the drafts of one session of another node."""
        return DraftSteps(self.runner, self.sharing)

    def source(
        self, features: FeaturesSince | None, giving: Giving | None = None
    ) -> LocalDraftSource:
        """Drafts for one session of this node, until either ends."""
        self.used()
        source = LocalDraftSource(
            self.proposer, self.runner, features=features, giving=giving, sharing=self.sharing
        )
        self._sources.add(source)
        return source

    async def withdraw(self) -> None:
        """Drafts no more: lets go of its sessions, then ends its thread."""
        self.withdrawn.set()
        for source in tuple(self._sources):
            await source.close()
        await self.close()
