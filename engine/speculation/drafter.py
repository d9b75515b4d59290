"""Gets the drafts of one proposer for one generation, in time or not at all.

Owns the tasks that wait for a source. A draft that is late, malformed or does
not come costs its block the drafted tokens, is counted by kind, and is told
to the breaker; what is no `DraftFailed` is a defect of the source and is
raised.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kakeya_fleet.engine.contracts.draft import MAX_BLOCK_SIZE, Draft, DraftSource, ProposerKey
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.engine.sessions.history import Prefix
from kakeya_fleet.engine.sessions.step import Step
from kakeya_fleet.engine.speculation.ahead import may_fit, usable_suffix
from kakeya_fleet.engine.speculation.block_measurement import BlockMeasurement
from kakeya_fleet.engine.speculation.checks import check_draft
from kakeya_fleet.engine.speculation.generation_report import DropReason
from kakeya_fleet.engine.speculation.meanwhile import NOTHING, Meanwhile
from kakeya_fleet.engine.speculation.state import SpeculationState
from kakeya_fleet.engine.speculation.tally import Tally

# Of a deadline: how long a draft may be expected to take.
IN_TIME_SHARE = 0.8
# An answer that is there already takes a turn of the event loop or two.
LEAST_WAIT_SECONDS = 1e-3
FOUND_SECONDS = 1e-3
"""A draft that took longer was made, whatever its proposer says."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class DraftingLimits:
    """What holds for every draft of a generation.

    `deadline_seconds` is the longest that the verifier waits for a draft.
    `block_size` tokens are drafted at most. `adaptive` lets the measured pace
    choose smaller blocks and drop drafting; otherwise it is always `block_size`.
    `drawing` says how the verifier draws, None that it is greedy.
    """

    block_size: int
    vocabulary_size: int
    deadline_seconds: float
    adaptive: bool
    drawing: Drawing | None = None


@dataclass(frozen=True, slots=True)
class BlockDraft:
    """The draft for one block, empty when there is none.

    `received` says whether a well-formed one, be it empty, came in time, and
    `proposer` whose it is; `hedged` that it was asked of a second one, the first being late;
    `found` that no model made it, and else `made_count` how many tokens one made; `reads` that
    it had more to read before than a block. What was decoded `meanwhile` is no part of it any more.
    """

    token_ids: tuple[int, ...] = ()
    draft_seconds: float = 0.0
    wire_seconds: float = 0.0
    wait_seconds: float = 0.0
    ahead: bool = False
    received: bool = False
    proposer: ProposerKey | None = None
    hedged: bool = False
    found: bool = False
    made_count: int = 0
    reads: bool = False
    meanwhile: Meanwhile = NOTHING


NO_DRAFT = BlockDraft()


@dataclass(frozen=True, slots=True)
class _Request:
    """A draft in flight since `asked_at`: behind `base_length` tokens of history and `assumed`."""

    base_length: int
    assumed: tuple[int, ...]
    block_size: int
    asked_at: float
    task: asyncio.Task[Draft]


class Drafter:
    """One proposer's drafts for one generation. Has at most one draft in flight."""

    def __init__(
        self,
        source: DraftSource,
        state: SpeculationState,
        limits: DraftingLimits,
        tally: Tally,
        clock: Callable[[], float],
    ) -> None:
        self._source = source
        self._state = state
        self._limits = limits
        self._tally = tally
        self._clock = clock
        self._ahead: _Request | None = None
        # Tokens that the proposer has read, the same as those that it was asked behind.
        self._read_count = 0

    async def next_draft(self, history: Prefix, most: int, seconds_left: float) -> BlockDraft:
        """A draft of at most `most` >= 1 tokens behind `history`.

        The one made ahead if it fits, a fresh one otherwise; each is waited for
        as long as the limits say, both no longer than `seconds_left`.
        """
        began = self._clock()
        ready = await self._taken_ahead(history, most, seconds_left)
        if ready is not None or not self._may_ask():
            return _block_draft(ready)
        ready = await self._fresh(history, most, seconds_left - (self._clock() - began))
        unread, self._read_count = len(history) - self._read_count, len(history)
        return replace(_block_draft(ready), reads=unread > self._limits.block_size + 1)

    async def second_draft(self, history: Prefix, most: int, seconds: float) -> BlockDraft:
        """A draft of a block that another proposer is late with, waited for `seconds` at most.

        That it does not come in them is no fault.
        """
        return _block_draft(await self._fresh(history, most, seconds))

    def late_after(self) -> float | None:
        """Seconds from now after which the next draft is late; None while that is unknown."""
        seconds, ahead = self._state.round_trips.late_after(), self._ahead
        if seconds is None or ahead is None or ahead.task.done():
            return seconds
        return max(LEAST_WAIT_SECONDS, seconds - (self._clock() - ahead.asked_at))

    def gave_up(self, seconds: float) -> None:
        """Its draft was given up after so long, another proposer's being there."""
        self._state.round_trips.add(seconds)

    def draft_ahead(self, history: Prefix, assumed: Sequence[int], most: int) -> None:
        """Starts a draft of at most `most` tokens behind `history` + `assumed`.

        Does nothing when it would not pay, when nothing is left to draft, and when
        the source cannot draft behind assumed tokens.
        """
        if not self._source.drafts_ahead:
            return
        if not assumed or most < 1 or not self._state.breaker.closed:
            return
        pace = self._state.pace
        if self._limits.adaptive and (pace.dropped or not pace.should_draft_ahead()):
            return
        self._ahead = self._request(history, tuple(assumed), self._block_size(most) + 1)
        self._read_count = len(history) + len(assumed)

    def after_block(
        self, draft: BlockDraft, step: Step, verify_seconds: float, other_seconds: float
    ) -> None:
        """Learns from a block that was verified with the `draft` that came."""
        meanwhile = draft.meanwhile
        passed = meanwhile.agreed_count + meanwhile.dropped_count
        self._state.pace = self._state.pace.after_block(
            BlockMeasurement(
                drafted_count=passed + step.drafted_count,
                accepted_count=meanwhile.agreed_count + step.accepted_count,
                committed_count=meanwhile.token_count + len(step.committed),
                row_count=step.drafted_count + 1,
                went_on=meanwhile.token_count > 0,
                verify_seconds=verify_seconds,
                wait_seconds=draft.wait_seconds + meanwhile.seconds,
                round_trip_seconds=draft.draft_seconds + draft.wire_seconds,
                compute_seconds=draft.draft_seconds,
                other_seconds=other_seconds,
                beside_draft=self._ahead is not None,
                made_ahead=draft.ahead,
                made_count=draft.made_count,
                reads=draft.reads,
                is_found=draft.found,
            )
        )

    async def opened(self, history: Prefix) -> bool | None:
        """Asks for one token that nobody will verify; whether it came, None for a fault.

        A fault counts as one of any draft. Nothing is asked of a proposer that is shut out. One
        that finds nothing, or reads a long history first, has no token to give.
        """
        if not self._state.breaker.allows(self._clock()):
            return None
        timeout = self._limits.deadline_seconds
        self._state.breaker = self._state.breaker.after_asking(self._clock(), timeout)
        self._read_count = len(history)
        drafting = self._source.draft(history, (), 1)
        draft = await self._received(drafting, 1, math.inf, self._clock())
        return None if draft is None else bool(draft.token_ids)

    async def close(self) -> None:
        """Takes back the draft in flight; no task is left when this returns."""
        request, self._ahead = self._ahead, None
        if request is not None:
            await taken_back(request.task)

    def _may_ask(self) -> bool:
        if self._limits.adaptive and self._state.pace.dropped:
            return False
        return self._state.breaker.allows(self._clock())

    def _block_size(self, most: int) -> int:
        most = min(most, self._limits.block_size)
        if not self._limits.adaptive:
            return most
        in_time = IN_TIME_SHARE * self._limits.deadline_seconds
        return self._state.pace.block_size(most, in_time)

    def _request(self, history: Prefix, assumed: tuple[int, ...], size: int) -> _Request:
        base_length = len(history)
        size = min(size, MAX_BLOCK_SIZE)
        drawing = self._limits.drawing
        drafting = self._source.draft(history, assumed, size, drawing)
        task = asyncio.ensure_future(drafting)
        return _Request(base_length, assumed, size, self._clock(), task)

    async def _fresh(
        self, history: Prefix, most: int, seconds_left: float
    ) -> tuple[Draft, tuple[int, ...], bool] | None:
        state, timeout = self._state, self._limits.deadline_seconds
        state.breaker = state.breaker.after_asking(self._clock(), timeout)
        size = min(self._block_size(most), MAX_BLOCK_SIZE)
        # In this task: each hand-over from one to another is a turn of the event loop.
        drawing = self._limits.drawing
        drafting = self._source.draft(history, (), size, drawing)
        draft = await self._received(drafting, size, seconds_left, self._clock())
        return None if draft is None else (draft, draft.token_ids, False)

    async def _taken_ahead(
        self, history: Prefix, most: int, seconds_left: float
    ) -> tuple[Draft, tuple[int, ...], bool] | None:
        """The draft made ahead, cut to what fits; None when it does not."""
        request, self._ahead = self._ahead, None
        if request is None:
            return None
        committed = history[request.base_length :]
        if may_fit(request.assumed, committed) or request.task.done():
            draft = await self._received(
                _joined(request.task), request.block_size, seconds_left, request.asked_at
            )
        else:
            await taken_back(request.task)
            draft = None
        if draft is not None:
            rest = usable_suffix((*request.assumed, *draft.token_ids), committed)
            if rest:
                self._tally.ahead_hit_count += 1
                return draft, rest[: min(most, self._limits.block_size)], True
        self._tally.ahead_miss_count += 1
        return None

    async def _received(
        self, drafting: Awaitable[Draft], block_size: int, seconds_left: float, asked_at: float
    ) -> Draft | None:
        """The well-formed draft of at most `block_size` tokens; None with the fault counted.

        Also None, and no fault, when the generation's time was up first.
        """
        timeout = self._limits.deadline_seconds
        try:
            draft = await _within(drafting, min(timeout, seconds_left))
            if draft is None and seconds_left < timeout:
                return None
            if draft is None:
                raise DraftFailed(DraftFaultKind.DEADLINE, f"no draft within {timeout} s")
            check_draft(draft, block_size, self._limits.vocabulary_size)
        except DraftFailed as fault:
            self._tally.faults[DropReason(fault.kind.value)] += 1
            self._state.breaker = self._state.breaker.after_fault(
                fault.kind, self._clock(), asked_at
            )
            return None
        self._state.breaker = self._state.breaker.after_success()
        self._state.round_trips.add(draft.round_trip_seconds)
        self._tally.add_round_trip(_wire_seconds(draft))
        return draft


async def _within(drafting: Awaitable[Draft], seconds: float) -> Draft | None:
    """The draft, or None, taken back, when it does not come in time.

    A caller that is cancelled takes it back too.
    """
    caller = asyncio.current_task()
    limit = asyncio.timeout(max(0.0, seconds))
    try:
        async with limit:
            try:
                draft = await drafting
            except (asyncio.CancelledError, DraftFailed) as ended:
                if caller is not None and caller.cancelling():
                    # What it fails with while it is taken back is nobody's concern.
                    raise asyncio.CancelledError from ended
                if isinstance(ended, DraftFailed):
                    raise
                # Nobody here did it: the source was closed under the draft.
                raise DraftFailed(
                    DraftFaultKind.UNREACHABLE, "the draft was cancelled by its source"
                ) from ended
    except TimeoutError:
        if not limit.expired():
            raise
        return None
    return None if limit.expired() else draft


async def _joined(task: asyncio.Task[Draft]) -> Draft:
    """The task's draft. Cancelling cancels the task, and waits for its end."""
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        await taken_back(task)
        raise
    return task.result()


async def taken_back(task: asyncio.Future[Result]) -> None:
    """Cancels the task and waits for its end; raises what is no fault of a proposer."""
    task.cancel()
    await asyncio.wait({task})
    if task.cancelled():
        return
    error = task.exception()
    if error is not None and not isinstance(error, DraftFailed):
        raise error


def _block_draft(ready: tuple[Draft, tuple[int, ...], bool] | None) -> BlockDraft:
    """A draft, what of it fits, and whether it was made ahead."""
    if ready is None:
        return NO_DRAFT
    draft, token_ids, ahead = ready
    return BlockDraft(
        token_ids=token_ids,
        draft_seconds=draft.compute_seconds,
        wire_seconds=_wire_seconds(draft),
        ahead=ahead,
        received=True,
        found=draft.is_found and draft.compute_seconds < FOUND_SECONDS,
        made_count=len(draft.token_ids),
    )


def _wire_seconds(draft: Draft) -> float:
    return max(0.0, draft.round_trip_seconds - draft.compute_seconds)
