"""The speculative loop: one verify forward a block, tokens as they commit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import TypeAlias

from kakeya_fleet.engine.errors import BadParameters, EmptyHistory, OutOfKvMemory, RestorerLost
from kakeya_fleet.engine.sampling.answer import Answer
from kakeya_fleet.engine.sessions.decoding import Decoding
from kakeya_fleet.engine.sessions.history import Prefix
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.sessions.step import Step
from kakeya_fleet.engine.sessions.turns import Block, Verified, VerifyTurn
from kakeya_fleet.engine.speculation.asking import Asking
from kakeya_fleet.engine.speculation.company import Company
from kakeya_fleet.engine.speculation.drafter import NO_DRAFT, BlockDraft, DraftingLimits
from kakeya_fleet.engine.speculation.drafting import Drafting
from kakeya_fleet.engine.speculation.generation_parameters import GenerationParameters
from kakeya_fleet.engine.speculation.generation_report import (
    BlockTiming,
    Committed,
    Done,
    GenerationTimings,
    StopReason,
)
from kakeya_fleet.engine.speculation.roster import Roster
from kakeya_fleet.engine.speculation.tally import Tally


class Decodes(Enum):
    """Why tokens are decoded without a draft: nobody is asked for one, for the session's own sake
    or for that of others, or one is on its way.
    """

    AT_REST = auto()
    FOR_ALL = auto()
    MEANWHILE = auto()


LAST_TOKENS = 32
"""Said before a proposer would be found: who began without looks for none."""
FIRST_DRAFTED = 15
"""In an answer's first block, unless a size is asked for: its reader waits for that."""

Connect: TypeAlias = Callable[[], Awaitable[Roster | None]]
"""Finds a session's proposers; None where it has none now."""


def _never() -> bool:
    return False


def _ignore(_timing: BlockTiming) -> None:
    return


async def generate(
    session: Session,
    proposers: Roster | None,
    parameters: GenerationParameters,
    driver: SessionDriver,
    *,
    should_stop: Callable[[], bool] = _never,
    on_block: Callable[[BlockTiming], None] = _ignore,
    company: Company | None = None,
    connect: Connect | None = None,
) -> AsyncGenerator[Committed | Done, None]:
    """Continues the session's history; yields tokens as they commit, then one `Done`.

    `driver` runs its turns, what is pending first. `should_stop` is asked between
    turns and ends with DRAINING. `on_block` hears of every block, also of those that
    `Done` no longer has, or never comes to tell. `proposers` keeps what earlier
    generations learned; its sources stay open. When the session's restorer is lost and
    the driver recovers it, its history and the block are computed again, and the stream
    goes on as it would have. When it finds no room to grow, and can shrink, it is computed
    again too, and goes on as one that was opened as it is then. Where it is adaptive it drafts
    only while that pays for all of its `company`. One without `proposers` that begins while all
    rest is given them by `connect`, once they do not.

    The tokens are the verifier's own choices whatever a source does, and whoever drafts. Leaving
    the iterator (`aclose`, cancellation) stops the work within one forward, leaves
    no task behind, and keeps what was committed; the session can go on.

    Raises `EmptyHistory`, `BadParameters` when the biases do not fit the
    vocabulary or leave nothing to choose from, or more was said than the history has,
    `GrammarRefused` when the grammar does, `InvariantViolated`,
    `SessionNotFound` when the session ends meanwhile, `RestorerLost` when that is
    for good, and whatever a source raises but `DraftFailed`.
    """
    generation = _Generation(session, proposers, parameters, driver, should_stop, company, connect)
    try:
        stop = await generation.prefill()
        while stop is None:
            try:
                committed, stop = await generation.block()
            except RestorerLost as lost:
                stop = await generation.recovered(lost)
                continue
            except OutOfKvMemory as short:
                stop = await generation.shrunk(short)
                continue
            for timing in generation.latest_blocks:
                on_block(timing)
            yield committed
            stop = stop or generation.stop_reason()
        await generation.close()
        yield generation.done(stop)
    finally:
        await generation.close()


class _Generation:
    """One call of `generate`: its clock marks, counts and draft in flight."""

    def __init__(
        self,
        session: Session,
        proposers: Roster | None,
        parameters: GenerationParameters,
        driver: SessionDriver,
        should_stop: Callable[[], bool],
        company: Company | None,
        connect: Connect | None,
    ) -> None:
        if not session.history:
            raise EmptyHistory("a generation continues a history; append tokens first")
        parameters.sampling.check_vocabulary(session.verifier.info.vocabulary_size)
        self._session = session
        self._parameters = parameters
        self._answer = _answer(session, parameters)
        self._driver = driver
        self._clock = driver.clock
        self._should_stop = should_stop
        self._proposers = proposers
        self._tally = Tally()
        self._began = driver.clock()
        self._prefill_seconds = 0.0
        self._first_token_seconds = 0.0
        # Besides the last committed token, which every forward begins with.
        widest = session.width - 1
        self._widest = min(parameters.block_size or widest, widest)
        self._drafting: Drafting | None = None
        self._asking = Asking(driver.clock, self._tally)
        self._in_hand: BlockDraft | None = None
        """The draft of a block whose forward lost the restorer, or found no room."""
        self._decoding: Decoding | None = None
        """Tokens without drafts, which are decided while those before them are handed out."""
        self._decodes = Decodes.AT_REST
        self._decoded_until = 0.0
        """When the latest of them was there, in seconds from the beginning."""
        self._alone_seconds: list[float] = []
        """What each of them took behind the one before, while nobody else generated."""
        self._failed: Exception | None = None
        """What a forward raised behind tokens that were told."""
        self.latest_blocks: list[BlockTiming] = []
        """Where the seconds of the latest blocks went, those that `block` came back with."""
        self._company = company
        self._connect = connect if self._widest > 0 else None
        if proposers is not None and self._widest > 0:
            self._drafting = self._drafting_of(proposers)
        is_drafted = self._drafting is not None or self._connect is not None
        self._may_draft = is_drafted and parameters.adaptive
        if company is not None:
            company.enter(drafts=self._may_draft)

    async def prefill(self) -> StopReason | None:
        """Computes pending K/V; a reason when there is nothing to generate after it."""
        began = self._elapsed()
        stop = await self._driver.prefill(self._session, self.stop_reason)
        self._prefill_seconds += self._elapsed() - began
        return stop or self.stop_reason()

    async def recovered(self, lost: RestorerLost) -> StopReason | None:
        """Makes the cache anew that a block has lost, and does as `prefill`; else raises `lost`."""
        if self._driver.recover is None:
            raise lost
        await self._driver.recover()
        return await self.prefill()

    async def shrunk(self, short: OutOfKvMemory) -> StopReason | None:
        """Packs a session that found no room to grow, and does as `prefill`; else raises it."""
        if not self._session.can_shrink:
            raise short
        self._session.shrink()
        return await self.prefill()

    async def block(self) -> tuple[Committed, StopReason | None]:
        """Drafts, verifies and commits one block; without drafts several of one token each."""
        self.latest_blocks = []
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        if self._decoding is None:
            await self._begin()
        if self._decoding is None and self._drafting is not None:
            return await self._drafted(self._drafting)
        steps = [verified.step for verified in await self._decoded()]
        return Committed.of(steps), _ending(steps[-1])

    async def _begin(self) -> None:
        """Has tokens decoded that nobody is to draft, if the next ones are."""
        remaining = self._remaining()
        rests, connect = self._rests_for_all, self._connect
        if connect is not None:
            if rests or remaining <= LAST_TOKENS:
                self._decode(remaining, Decodes.FOR_ALL if rests else Decodes.AT_REST)
                return
            if not self._tally.token_count:
                # Others of its crowd may be about to come.
                self._decode(1)
                return
            self._connect, self._proposers = None, await connect()
            if self._proposers is not None:
                self._drafting = self._drafting_of(self._proposers)
        drafting = self._drafting
        if drafting is None:
            self._decode(remaining)
        elif not self._asking.is_asked and self._in_hand is None:
            rest = drafting.rest_blocks
            if rest:
                self._decode(min(rest, remaining))
            elif rests:
                self._decode(remaining, Decodes.FOR_ALL)
        if self._decoding is None and drafting is not None and self._may_go_on(drafting):
            if not self._asking.is_asked:
                self._ask()
            if self._asking.is_on_its_way:
                self._decode(remaining, Decodes.MEANWHILE)

    def _may_go_on(self, drafting: Drafting) -> bool:
        """Whether tokens are decoded while a draft is on its way: not among those of others."""
        is_one = self._company is None or self._company.is_one
        return self._in_hand is None and is_one and drafting.goes_on

    def _decode(self, limit: int, why: Decodes = Decodes.AT_REST) -> None:
        deadline = self._parameters.deadline_seconds
        self._decodes = why
        self._decoding = Decoding(
            self._driver.run,
            self._session,
            self._block((), limit),
            self._clock,
            self._driver.gather_seconds,
            # The first token comes at once, and the end in time.
            at_once=not self._tally.token_count,
            until=self._began + deadline if deadline else math.inf,
        )
        self._decoded_until = self._elapsed()
        self._alone_seconds = []
        self._asking.when_there(self._draft_came)

    async def _decoded(self) -> tuple[Verified, ...]:
        """Tokens that are told together."""
        decoding = self._decoding
        if decoding is None:
            raise AssertionError("nothing is decoded")
        try:
            decoded = await decoding.take()
        finally:
            if decoding.is_over:
                self._decoding = None
        self._failed = decoded.error
        for verified in decoded.steps:
            self._record(NO_DRAFT, verified, self._decoded_until)
            until = verified.began + verified.seconds - self._began
            self._alone_seconds.append(until - self._decoded_until)
            self._decoded_until = until
        self._tell_of_alone()
        drafting = self._drafting
        if self._decodes is Decodes.FOR_ALL:
            if not self._rests_for_all:
                decoding.stop()
            if drafting is not None:
                drafting.after_rest_for_all(decoded.steps)
        elif self._decodes is Decodes.AT_REST and drafting is not None:
            drafting.after_rest(decoded.steps)
            if not drafting.rest_blocks:
                # Another proposer may be about to be tried.
                decoding.stop()
        elif drafting is not None and self._decoding is not None:
            await self._pass_over(drafting, decoding, decoded.steps[-1])
        return decoded.steps

    def _draft_came(self, _draft: object) -> None:
        """Ends what is decoded meanwhile, unless that has overtaken the draft."""
        if self._decoding is not None and not self._asking.is_overtaken(self._session.history):
            self._decoding.stop()

    async def _pass_over(self, drafting: Drafting, decoding: Decoding, latest: Verified) -> None:
        """Asks for another draft where that on its way was overtaken: nobody waits for either."""
        if latest.step.ends or not self._asking.is_overtaken(self._session.history):
            return
        drafting.after_overtaken(await self._asking.taken(self._session.history), latest)
        if self._rests_for_all or drafting.rest_blocks or not self._may_go_on(drafting):
            decoding.stop()
            return
        self._ask()
        self._asking.when_there(self._draft_came)

    def _tell_of_alone(self) -> None:
        """What a token takes alone, once that is known of all that was decoded at once.

        What is decoded while a draft is made says nothing where both share anything.
        """
        company = self._company
        if company is None or not company.is_one or self._decodes is Decodes.MEANWHILE:
            self._alone_seconds = []
        elif self._decoding is None:
            # Behind the first of them: it waited for its turn.
            session = self._session
            company.alone.made(self._alone_seconds[1:], session.spec, len(session.history))

    async def _drafted(self, drafting: Drafting) -> tuple[Committed, StopReason | None]:
        session = self._session
        started = self._elapsed()
        limit = self._remaining()
        draft = self._in_hand
        if draft is None:
            draft = self._in_hand = await self._next_draft()
            behind = limit - len(draft.token_ids) - 1
            drafting.draft_ahead(self._until_now(), draft.token_ids, behind - 1)

        block = self._block(draft.token_ids, limit)
        verified = await self._driver.run(VerifyTurn(session, block, self._clock))
        self._in_hand = None
        step = verified.step
        drafting.after_block(draft, step, verified.seconds)
        rests = self._rests_for_all or (not draft.received and drafting.rest_blocks)
        if not step.ends and not rests:
            self._ask(uncounted=len(step.committed))
            # Two turns of the event loop bring the request on its way before all else.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        self._record(draft, verified, started)
        return Committed.of([step]), _ending(step)

    def stop_reason(self) -> StopReason | None:
        """Why to stop between two turns; None to go on, if only to raise what failed."""
        if self._failed is not None:
            return None
        if self._decoding is not None:
            # What was decided meanwhile is told first.
            if self._should_stop():
                self._decoding.stop()
            return None
        if self._answer is not None and self._answer.is_complete:
            return StopReason.COMPLETE
        if self._tally.token_count >= self._parameters.max_tokens:
            return StopReason.MAX_TOKENS
        if self._remaining() <= 0:
            return StopReason.CONTEXT_FULL
        if self._seconds_left() <= 0.0:
            return StopReason.DEADLINE
        return StopReason.DRAINING if self._should_stop() else None

    async def close(self) -> None:
        """Takes back the drafts in flight."""
        # First: nobody waits for one that could not take them back.
        company, self._company = self._company, None
        if company is not None:
            company.leave(drafts=self._may_draft)
        await self._asking.close()
        decoding, self._decoding = self._decoding, None
        if decoding is not None:
            await decoding.close()
        if self._drafting is not None:
            await self._drafting.close()

    @property
    def _rests_for_all(self) -> bool:
        """Whether drafts would slow all sessions together."""
        return self._may_draft and self._company is not None and self._company.rests

    def _drafting_of(self, proposers: Roster) -> Drafting:
        parameters, company = self._parameters, self._company
        if company is not None:
            session = self._session
            proposers.know_alone(company.alone.seconds(session.spec, len(session.history)))
        limits = DraftingLimits(
            block_size=self._widest,
            vocabulary_size=self._session.verifier.info.vocabulary_size,
            deadline_seconds=parameters.draft_deadline_seconds,
            adaptive=parameters.adaptive,
            drawing=parameters.sampling.drawing,
        )
        return Drafting(proposers, limits, self._tally, self._clock)

    def _block(self, draft: Sequence[int], limit: int) -> Block:
        parameters = self._parameters
        return Block(draft, parameters.sampling, limit, parameters.stop_ids, self._answer)

    def _ask(self, *, uncounted: int = 0) -> None:
        """Asks for the next draft now, so that its way is hidden behind handing out tokens.

        `uncounted` tokens were committed that the tally has not got yet.
        """
        if self._drafting is None:
            return
        most = self._remaining(uncounted) - 1
        if not self._parameters.block_size and not self._tally.token_count + uncounted:
            most = min(most, FIRST_DRAFTED)
        if most > 0:
            self._asking.ask(self._drafting, self._until_now(), most, self._seconds_left())

    def _until_now(self) -> Prefix:
        """The history, in which more may be decoded before this is read."""
        history = self._session.history
        return history.until(len(history))

    async def _next_draft(self) -> BlockDraft:
        """The draft for this block."""
        if not self._asking.is_asked:
            self._ask()
        return await self._asking.taken(self._session.history)

    def done(self, stop: StopReason) -> Done:
        """The report of the end."""
        sampling = self._parameters.sampling
        return Done(
            stop_reason=stop,
            generated_token_count=self._tally.token_count,
            history_length=len(self._session.history),
            timings=GenerationTimings(
                prefill_seconds=self._prefill_seconds,
                first_token_seconds=self._first_token_seconds,
                total_seconds=self._elapsed(),
            ),
            speculation=self._tally.statistics(
                self._proposers.drop_reason
                if self._proposers is not None and self._drafting is not None
                else None
            ),
            timeline=tuple(self._tally.timeline),
            seed=0 if sampling.greedy else sampling.seed,
            forgotten_token_count=self._session.forgotten_count,
        )

    def _record(self, draft: BlockDraft, verified: Verified, started: float) -> None:
        step = verified.step
        if self._tally.token_count == 0:
            self._first_token_seconds = self._elapsed()
        timing = BlockTiming(
            first_index=step.first_index,
            drafted_count=step.drafted_count,
            forbidden_count=step.forbidden_count,
            accepted_count=step.accepted_count,
            draft_seconds=draft.draft_seconds,
            wire_seconds=draft.wire_seconds,
            wait_seconds=draft.wait_seconds,
            verify_seconds=verified.seconds,
            drafted_ahead=draft.ahead,
            start_seconds=started,
            committed_count=len(step.committed),
            proposer=draft.proposer,
            found=draft.found,
        )
        if self._company is not None:
            seconds_ago = self._clock() - verified.began - verified.seconds
            self._company.committed(len(step.committed), seconds_ago)
        self._tally.add_block(timing, len(step.committed))
        self.latest_blocks.append(timing)

    def _elapsed(self) -> float:
        return self._clock() - self._began

    def _seconds_left(self) -> float:
        deadline = self._parameters.deadline_seconds
        return deadline - self._elapsed() if deadline else math.inf

    def _remaining(self, uncounted: int = 0) -> int:
        """Tokens that may still be committed; `uncounted` were that the tally has not got."""
        asked = self._parameters.max_tokens - self._tally.token_count - uncounted
        return min(asked, self._session.history_limit - len(self._session.history))


def _answer(session: Session, parameters: GenerationParameters) -> Answer | None:
    """What the generation has said so far; None where nothing depends on it."""
    if parameters.guide is None and not parameters.sampling.penalises_counts:
        return None
    begins = len(session.history) - parameters.said_count
    if begins < 0:
        raise BadParameters(
            f"{parameters.said_count} tokens of this generation are more than the"
            f" {len(session.history)} of the history",
            field="said_count",
        )
    said = session.history[begins:]
    vocabulary_size = session.verifier.info.vocabulary_size
    return Answer(vocabulary_size, said, parameters.guide, parameters.stop_ids)


def _ending(step: Step) -> StopReason | None:
    """Why a generation ends with what was committed; None where it goes on."""
    if step.stopped:
        return StopReason.STOP_TOKEN
    return StopReason.COMPLETE if step.complete else None
