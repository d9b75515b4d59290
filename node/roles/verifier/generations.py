"""Runs generations: one session's turn, its source, the loop, and what was learned."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial

from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.engine.sessions.history import History
from kakeya_fleet.engine.sessions.history_checks import check_expected
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.sessions.session_record import Activity
from kakeya_fleet.engine.speculation.generation import generate
from kakeya_fleet.engine.speculation.generation_parameters import GenerationParameters
from kakeya_fleet.engine.speculation.generation_report import (
    BlockTiming,
    Committed,
    Done,
    GenerationTimings,
    SpeculationStatistics,
    StopReason,
)
from kakeya_fleet.engine.speculation.roster import Roster
from kakeya_fleet.node.grammars.grammars import Grammars, go_on
from kakeya_fleet.node.grammars.matcher_guide import MatcherGuide
from kakeya_fleet.node.planning.draft_ledgers import DraftLedgers
from kakeya_fleet.node.roles.verifier.observer import Finished
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.runtime_wire import GenerationSpec
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.verifier.session_lifecycle import SessionLifecycle
from kakeya_fleet.node.rpc.refusals import TooBusy

# However long the queue is, a client looks again within a minute.
LONGEST_RETRY_SECONDS = 60.0
# A generation whose time was up while it waited for its turn still has to say so.
_NO_TIME_SECONDS = 1e-9


@asynccontextmanager
async def _turn_within(turn: asyncio.Lock, seconds: float) -> AsyncIterator[bool]:
    """Holds the turn, and says whether it came within `seconds`; 0 waits for ever."""
    try:
        async with asyncio.timeout(seconds or None):
            await turn.acquire()
    except TimeoutError:
        yield False
        return
    try:
        yield True
    finally:
        turn.release()


class Generations:
    """All generations of a node. Belongs to the event loop's thread."""

    def __init__(
        self,
        lifecycle: SessionLifecycle,
        ledgers: DraftLedgers,
        clock: Callable[[], float],
        *,
        draft_deadline_seconds: float,
    ) -> None:
        self._lifecycle = lifecycle
        self._observer = lifecycle.announcer.observer
        self._ledgers = ledgers
        self._clock = clock
        self._draft_deadline_seconds = draft_deadline_seconds
        self._grammars = Grammars()
        self._running: Counter[ServedVerifier] = Counter()
        self._changed = asyncio.Event()

    @property
    def running_count(self) -> int:
        """Generations that run now, those that wait for their turn not counted."""
        return self._running.total()

    async def all_ended(self, served: ServedVerifier | None = None) -> None:
        """Waits until no generation runs, of one verifier or of all."""
        while self._running[served] if served is not None else self.running_count:
            self._changed.clear()
            await self._changed.wait()

    async def run(
        self, session: OpenSession, spec: GenerationSpec, seconds_left: float | None = None
    ) -> AsyncGenerator[Committed | Finished, None]:
        """Tokens as they commit, then the end.

        Waits for the session's turn, as long as the deadline allows; a call that has only
        `seconds_left` does not begin what could not begin in them. Leaving
        the iterator (`aclose`, a cancelled task) stops the work within one
        block; what was committed stays in the history. Raises `TooBusy`, `SessionNotFound`,
        `Draining`, `EmptyHistory`, `HistoryLengthMismatch`, `RestorerLost`, `InvariantViolated`,
        and what `Grammars.guide` raises, before the turn.
        """
        arrived = self._clock()
        guide = await self._guide(session, spec)
        own = spec.deadline_seconds or math.inf
        _refuse_when_hopeless(session, min(own, math.inf if seconds_left is None else seconds_left))
        async with _turn_within(session.turn, spec.deadline_seconds) as is_ours:
            self._lifecycle.refuse_when_leaving(session.served)
            queue_seconds = self._clock() - arrived
            if not is_ours:
                yield self._too_late(session, spec, queue_seconds)
                return
            with self._lifecycle.working(session, Activity.GENERATING) as record:
                check_expected(spec.expected_length, len(record.session.history))
                before = _recomputing(session)
                observer, finished = self._observer, False
                self._running[session.served] += 1
                observer.began(session)
                try:
                    history = record.session.history
                    if guide is not None:
                        await go_on(guide, _said(history, spec))
                    connect = partial(self._connected, session, history, spec, arrived)
                    rests = session.begins_at_rest
                    proposers = None if rests else await connect()
                    generation = generate(
                        record.session,
                        proposers,
                        self._parameters(session, spec, guide, self._clock() - arrived),
                        SessionDriver(
                            session.served.worker.run_turn,
                            self._clock,
                            partial(self._lifecycle.prefilled, session),
                            partial(self._recover, session, spec, arrived),
                            session.served.worker.gather_seconds,
                        ),
                        should_stop=lambda: self._lifecycle.is_leaving(session.served),
                        on_block=partial(
                            self._learn, session, history, sampled=not spec.sampling.greedy
                        ),
                        company=session.served.company,
                        connect=connect if rests else None,
                    )
                    async with aclosing(generation):
                        async for event in generation:
                            if isinstance(event, Done):
                                done = self._finished(
                                    session,
                                    event,
                                    queue_seconds,
                                    before,
                                    arrived,
                                )
                                finished = True
                                observer.finished(session, done)
                                yield done
                            else:
                                observer.committed(session, len(event.token_ids))
                                yield event
                finally:
                    if not finished:
                        observer.left(session)
                    record.gives_way = spec.gives_way
                    self._ended(session.served)

    async def _recover(self, session: OpenSession, spec: GenerationSpec, arrived: float) -> None:
        """Makes the session's cache anew; gives up when the generation's time is over.

        It then ends with DEADLINE, and the session's next operation tries again.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds_left(spec, arrived)):
                await self._lifecycle.recover(session)

    async def _connected(
        self, session: OpenSession, history: History, spec: GenerationSpec, arrived: float
    ) -> Roster | None:
        """The session's proposers; None where they cannot be had before the time is over."""
        try:
            async with asyncio.timeout(self._seconds_left(spec, arrived)):
                sampled = not spec.sampling.greedy
                return await session.pairing.connect(history, sampled=sampled)
        except TimeoutError:
            return None

    def _seconds_left(self, spec: GenerationSpec, arrived: float) -> float | None:
        """Of the generation's own deadline; None without one."""
        deadline = spec.deadline_seconds
        return max(0.0, deadline - (self._clock() - arrived)) if deadline else None

    async def _guide(self, session: OpenSession, spec: GenerationSpec) -> MatcherGuide | None:
        """Of a generation that obeys a grammar, before it waits for its turn."""
        if spec.grammar is None:
            return None
        return await self._grammars.guide(spec.grammar, session.served.tokenizer)

    def _parameters(
        self,
        session: OpenSession,
        spec: GenerationSpec,
        guide: MatcherGuide | None,
        spent_seconds: float,
    ) -> GenerationParameters:
        """With what is left of the deadline after waiting for the turn and the proposers."""
        deadline = spec.deadline_seconds
        if deadline:
            deadline = max(deadline - spent_seconds, _NO_TIME_SECONDS)
        return GenerationParameters(
            max_tokens=spec.max_tokens,
            sampling=spec.sampling,
            stop_ids=session.spec.stop_token_ids | spec.stop_token_ids,
            deadline_seconds=deadline,
            block_size=session.pairing.block_size,
            draft_deadline_seconds=self._draft_deadline_seconds,
            adaptive=session.pairing.adaptive,
            said_count=spec.said_count,
            guide=guide,
        )

    def _too_late(
        self, session: OpenSession, spec: GenerationSpec, queue_seconds: float
    ) -> Finished:
        """The end of a generation whose turn did not come in time; the session is another's."""
        record = self._lifecycle.registry.get(session.session_id)
        done = Done(
            stop_reason=StopReason.DEADLINE,
            generated_token_count=0,
            history_length=len(record.session.history),
            timings=GenerationTimings(0.0, 0.0, 0.0),
            speculation=SpeculationStatistics(),
            timeline=(),
            seed=0 if spec.sampling.greedy else spec.sampling.seed,
            forgotten_token_count=record.session.forgotten_count,
        )
        return self._finished(session, done, queue_seconds)

    def _learn(
        self, session: OpenSession, history: History, block: BlockTiming, *, sampled: bool
    ) -> None:
        """Tells of a block, whether its client stays to the end or not."""
        self._observer.block(session, block)
        end = block.first_index + block.committed_count
        self._ledgers.record(
            session.session_id,
            session.spec.model_id,
            block,
            sampled=sampled,
            looped=session.loops.after(history[block.first_index : end]),
        )

    def _finished(
        self,
        session: OpenSession,
        done: Done,
        queue_seconds: float,
        before: tuple[int, int] | None = None,
        started_at: float = float("inf"),
    ) -> Finished:
        """The end of a generation, with what the node knows of it.

        `before` is what `_recomputing` was when it began; None when it had no turn.
        """
        rebuild_count, recomputed_count = _recomputing(session)
        if before is None:
            before = rebuild_count, recomputed_count
        proposer = session.pairing.plan.proposer
        statistics = done.speculation
        # A proposer without an address never gave the engine a source to judge.
        drop_reason = statistics.drop_reason or session.pairing.drop_reason
        return Finished(
            done,
            queue_seconds,
            proposer,
            drop_reason,
            rebuild_count - before[0],
            recomputed_count - before[1],
            session.link_changes(),
            started_at,
            session.quality,
        )

    def _ended(self, served: ServedVerifier) -> None:
        self._running[served] -= 1
        # A counter keeps what it counted to nothing, and with it a verifier that is gone.
        self._running += Counter()
        self._changed.set()


def _refuse_when_hopeless(session: OpenSession, seconds: float) -> None:
    """Raises `TooBusy` where the first token could not be there in so many seconds.

    Before anything is computed for it, and before it waits for the session's turn.
    """
    own = session.record.session
    needed = session.served.worker.load.first_token_seconds(own.pending, own.chunk)
    if needed > seconds:
        raise TooBusy(
            f"so many sessions compute here that the first token would take {needed:.1f} s, and "
            f"{seconds:.1f} s are left",
            retry_after_seconds=f"{min(max(needed - seconds, 0.1), LONGEST_RETRY_SECONDS):.1f}",
        )


def _said(history: History, spec: GenerationSpec) -> list[int]:
    """What the generation said elsewhere. Raises `BadParameters`."""
    begins = len(history) - spec.said_count
    if begins < 0:
        raise BadParameters(
            f"said_token_count is {spec.said_count}; the history has {len(history)} tokens",
            field="said_token_count",
        )
    return history[begins:]


def _recomputing(session: OpenSession) -> tuple[int, int]:
    """How often what it evicted was made anew, and positions computed once more, until now."""
    rebuild_count = session.restorer.rebuild_count if session.restorer is not None else 0
    return rebuild_count, session.record.session.recomputed_count
