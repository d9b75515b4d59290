"""The one way of tokens into a session: appended, their keys and values computed in turns.

The node serves `AppendTokens` with `append`, and a generation begins with `prefill`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kakeya_fleet.engine.contracts.blocking import Runner
from kakeya_fleet.engine.errors import OutOfKvMemory, RestorerLost
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import PrefillTurn, TurnRunner

Reason = TypeVar("Reason")


@dataclass(frozen=True, slots=True)
class Appended:
    """The history's length in tokens, and what computing took, waits for turns included."""

    history_length: int
    prefill_seconds: float


def _never() -> None:
    """No reason to stop."""


def _at_once() -> float:
    """Whoever generates is told of each token, and asks for the next one."""
    return 0.0


def _ignore(_token_count: int, _seconds: float) -> None:
    """The default of `on_prefill`."""


@dataclass(frozen=True, slots=True)
class SessionDriver:
    """How a session's turns are run, who hears of them, and what helps when its store is lost.

    `run` runs turns in the verifier's thread, `clock` gives monotonic seconds.
    """

    run: TurnRunner
    clock: Callable[[], float]
    on_prefill: Callable[[int, float], None] = _ignore
    """Hears how many tokens a turn computed and in how many seconds, its wait included.

    Also of a turn whose caller left.
    """
    recover: Callable[[], Awaitable[None]] | None = None
    """Gives a session that lost its restorer a new cache, or raises `RestorerLost` in the end.

    It decides how long it tries, and calls `Session.renew` in the verifier's thread.
    """
    gather_seconds: Callable[[], float] = _at_once
    """How long tokens that nobody drafts may wait for others, to be told together."""

    async def append(
        self,
        session: Session,
        token_ids: Sequence[int],
        expected_length: int | None = None,
        *,
        room: int = 0,
        run_step: Runner,
        should_stop: Callable[[], object | None] = _never,
    ) -> Appended:
        """Appends in the thread of `run_step`, with `room` behind it, then does as `prefill`.

        All tokens are in the history before the first turn, or none: raises what
        `Session.append` raises with nothing appended, and what `prefill` raises, its
        cancellation too, with all. The session's next operation computes what is left.
        """
        length = await run_step(partial(session.append, token_ids, expected_length, room))
        began = self.clock()
        await self.prefill(session, should_stop)
        return Appended(length, self.clock() - began)

    async def prefill(
        self, session: Session, should_stop: Callable[[], Reason | None] = _never
    ) -> Reason | None:
        """Computes all pending K/V, one forward a turn, so that other sessions take theirs.

        `should_stop` is asked before each turn: a reason ends the computation, and is
        returned. When the session's restorer is lost, `recover` is awaited and all is
        computed again; without one, raises `RestorerLost`. When the cache finds no room to grow,
        a session that can shrinks, and all is computed again; of another raises `OutOfKvMemory`,
        with what was computed kept. Raises `InvariantViolated`, and `SessionNotFound` when the
        session ends meanwhile.
        """
        while session.pending:
            reason = should_stop()
            if reason is not None:
                return reason
            try:
                await self._prefill_turn(session)
            except RestorerLost:
                if self.recover is None:
                    raise
                await self.recover()
            except OutOfKvMemory:
                if not session.can_shrink:
                    raise
                session.shrink()
        return None

    async def _prefill_turn(self, session: Session) -> None:
        before, began = session.pending, self.clock()
        try:
            await self.run(PrefillTurn(session))
        finally:
            computed = before - session.pending
            if computed > 0:
                self.on_prefill(computed, self.clock() - began)
