"""Tokens without drafts, decided one behind the other and told while more are decided.

Handing out tokens takes the event loop a quarter of a millisecond a session, and some time passes
before that asks for the next ones: where several were told at once the verifier's thread would wait
a quarter of the time. So a turn goes on while what it told is handed out, and ends where nobody
takes that.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from kakeya_fleet.engine.contracts.blocking import settled
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, Ended, SessionTurn, TurnRunner, Verified

FORCED_AT_ONCE = 3
"""Few, so that a session among others takes few rows; JSON's keys are seldom more in a row."""
MOST_LATE_SECONDS = 0.1
"""So much longer a turn goes on where nobody has taken what it told: the event loop has others, and
a reader that stopped leaves this much behind that it has not seen."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Tokens that came one by one; `error` is what the forward behind them raised, if it did."""

    steps: tuple[Verified, ...]
    error: Exception | None = None


def _at_the_end() -> float:
    return math.inf


class Reader(Protocol):
    """Whom a turn tells of its tokens while it goes on. Used in the verifier's thread."""

    @property
    def is_waiting(self) -> bool:
        """Whether all that was told is taken."""
        ...

    def tell(self, steps: Sequence[Verified], /) -> None:
        """These came."""
        ...


class DecodeTurn(SessionTurn[Decoded]):
    """Tokens without drafts, a forward each, but for those that a grammar forces.

    Of these up to `FORCED_AT_ONCE` go into a forward, as drafts that are always right.

    It goes on for `limit` >= 1 of them, or until the answer ends, `until` is over, `stop` was
    called, or a forward fails. The result is what nobody was told of.
    """

    decodes = True

    def __init__(
        self,
        session: Session,
        block: Block,
        clock: Callable[[], float] = time.perf_counter,
        *,
        reader: Reader | None = None,
        gather_seconds: Callable[[], float] = _at_the_end,
        at_once: bool = False,
        until: float = math.inf,
    ) -> None:
        """`block` has no draft; `clock` gives monotonic seconds, `until` is one of its.

        A `reader` is told of what came in `gather_seconds`, of the first token `at_once`. Where
        these are 0 the turn ends with its first forward.
        """
        super().__init__(session)
        self._block = block
        self._clock = clock
        self._reader = reader
        self._gather_seconds = gather_seconds
        self._told_at = -math.inf if at_once else clock()
        self._until = until
        self._is_stopped = False
        self._began = 0.0
        self._steps: list[Verified] = []
        self._count = 0
        self._forced: list[int] | None = None

    def stop(self) -> None:
        """It ends with its next forward. Any thread may ask."""
        self._is_stopped = True

    @property
    def rows(self) -> int:
        """The last token's, and those of what is forced behind it."""
        if self._forced is None:
            answer, room = self._block.answer, self._block.limit - self._count - 1
            room = min(room, FORCED_AT_ONCE, self.session.width - 1)
            self._forced = [] if answer is None else answer.forced(room)
        return 1 + len(self._forced)

    @property
    def least_rows(self) -> int:
        """The last token's."""
        return 1

    def feed(self, rows: int) -> Feed:
        """The last token, and what is forced behind it."""
        self._began = self._clock()
        forced = (self._forced or [])[: rows - 1]
        return self.session.verify_feed(forced, self._block.limit - self._count)

    def outcome(self, output: Output | None) -> Decoded:
        """What was committed and not told until now."""
        if output is None:
            raise ValueError("a token is decided by a forward")
        block = self._block
        step = self.session.verified(output, block.sampling, block.stop_ids, block.answer)
        step = replace(step, verified_count=0, accepted_count=0, forced_count=step.accepted_count)
        self._count += len(step.committed)
        self._forced = None
        self._steps.append(Verified(step, self._clock() - self._began, self._began))
        return Decoded(tuple(self._steps))

    def told(self, ended: Ended) -> Ended | None:
        """None while there is time, something to generate, and a reader that keeps up."""
        if ended.error is not None:
            return Ended(Decoded(tuple(self._steps), ended.error)) if self._steps else ended
        now = self._clock()
        if self._steps[-1].step.ends or self._count == self._block.limit:
            return ended
        if self._is_stopped or now >= self._until:
            return ended
        return None if self._reader is None or self._has_told(self._reader, now) else ended

    def _has_told(self, reader: Reader, now: float) -> bool:
        """Whether the turn goes on, its reader told of what is due."""
        gather_seconds = self._gather_seconds()
        waited = now - self._told_at
        if waited < gather_seconds:
            return True
        if not gather_seconds:
            return False
        if not reader.is_waiting:
            return waited < gather_seconds + MOST_LATE_SECONDS
        self._told_at = now
        steps, self._steps = self._steps, []
        reader.tell(steps)
        return True


class _Told:
    """What a turn told, on its way to the event loop: a `Reader`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._steps: list[Verified] = []
        self.is_waiting = True
        self.arrived = asyncio.Event()

    def tell(self, steps: Sequence[Verified], /) -> None:
        """In the verifier's thread."""
        self.is_waiting = False
        # A loop that is already closed has nobody left who reads.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._arrive, steps)

    def end(self, _running: asyncio.Future[Decoded]) -> None:
        """The turn is over, or failed."""
        self.arrived.set()

    async def taken(self) -> list[Verified]:
        """Waits until something came."""
        await self.arrived.wait()
        self.arrived.clear()
        steps, self._steps = self._steps, []
        self.is_waiting = True
        return steps

    def _arrive(self, steps: Sequence[Verified]) -> None:
        self._steps += steps
        self.arrived.set()


class Decoding:
    """A turn of one session on its way. Belongs to the event loop that made it.

    Whoever made it takes all until it `is_over`, or closes it; nothing else of the session runs
    meanwhile.
    """

    def __init__(
        self,
        run: TurnRunner,
        session: Session,
        block: Block,
        clock: Callable[[], float],
        gather_seconds: Callable[[], float],
        *,
        at_once: bool,
        until: float,
    ) -> None:
        """As `DecodeTurn`, which `run` runs."""
        self._told = _Told()
        self._turn = DecodeTurn(
            session,
            block,
            clock,
            reader=self._told,
            gather_seconds=gather_seconds,
            at_once=at_once,
            until=until,
        )
        self._running: asyncio.Future[Decoded] | None = asyncio.ensure_future(run(self._turn))
        self._running.add_done_callback(self._told.end)

    @property
    def is_over(self) -> bool:
        """Whether all was taken, and the session may do something else."""
        return self._running is None

    def stop(self) -> None:
        """It ends with its next forward."""
        self._turn.stop()

    async def take(self) -> Decoded:
        """What came since: a token or more. Raises what the turn does, behind all that came.

        The turn goes on where this is cancelled.
        """
        running = self._running
        if running is None:
            raise AssertionError("all of it was taken")
        try:
            steps = await self._told.taken()
            if running.done() and (not steps or running.exception() is None):
                self._running = None
                rest = running.result()
                return Decoded((*steps, *rest.steps), rest.error)
            if running.done():
                # Its error is for who comes again.
                self._told.end(running)
            return Decoded(tuple(steps))
        finally:
            # An error has its traceback, and that this frame: a circle.
            del running

    async def close(self) -> None:
        """Ends it within a forward, and waits for that, however often that is cancelled."""
        running, self._running = self._running, None
        if running is None:
            return
        running.cancel()
        await settled(running)
