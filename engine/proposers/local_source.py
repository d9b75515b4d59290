"""Drafts from a proposer in the same process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from kakeya_fleet.engine.contracts.blocking import Result, Runner
from kakeya_fleet.engine.contracts.draft import (
    ConditionedDraftState,
    Draft,
    DraftState,
    Proposer,
)
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.features import ContextVectors
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.engine.proposers.catching_up import CatchingUp
from kakeya_fleet.engine.proposers.giving import Giving, HistoryGiver
from kakeya_fleet.engine.proposers.shared_forwards import DraftSteps, Forwarding, Sharing


async def run_inline(step: Callable[[], Result], /) -> Result:
    """The `Runner` of a proposer too quick to be worth a thread."""
    return step()


def always_inline(_token_count: int) -> Runner:
    """`run_inline`, however many tokens a step takes in."""
    return run_inline


LONG = 1 << 20
"""Tokens of a step that no runner takes for a short one."""

FeaturesSince = Callable[[int], tuple[int, ContextVectors]]
"""The session's context vectors from a position on that are there, and the first's position."""


@dataclass(frozen=True, slots=True)
class _Block:
    """What is asked for."""

    assumed: Sequence[int]
    size: int
    drawing: Drawing | None


class LocalDraftSource:
    """A `DraftSource` over a `Proposer` in this process, for one session.

    `runner(token_count)` runs a step that takes in so many tokens or vectors: inline
    for `ngram` and a quick model unless they are many, in its own thread for others. One step runs
    at a time, in the order of the calls. `features`, for a proposer that needs
    context vectors, is asked where `draft` is awaited, before each step, for
    those that the state does not know. With `giving`, a proposer of the verifier's weights is
    given what it would have to read; with `sharing` its drafts share their model's forwards.
    """

    def __init__(
        self,
        proposer: Proposer,
        runner: Callable[[int], Runner] = always_inline,
        clock: Callable[[], float] = time.perf_counter,
        *,
        features: FeaturesSince | None = None,
        giving: Giving | None = None,
        sharing: Sharing | None = None,
    ) -> None:
        self._open_state: Callable[[Sequence[int]], DraftState] = proposer.open
        self._needs_features = proposer.encoder is not None
        self._runner = runner
        self._steps = DraftSteps(runner, sharing)
        self._clock = clock
        self._features = features
        self._giver = HistoryGiver(giving)
        self._turn = asyncio.Lock()
        self._catching_up = CatchingUp()
        self._state: DraftState | None = None
        # Kept here: a step whose caller was cancelled may still be changing the state.
        self._features_end = 0
        self._closed = False

    @property
    def drafts_ahead(self) -> bool:
        """Not for a proposer that needs context vectors: assumed tokens have none."""
        return not self._needs_features

    async def draft(
        self,
        history: Sequence[int],
        assumed: Sequence[int],
        block_size: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        """A draft that continues `history` + `assumed`.

        Raises `DraftFailed`: UNREACHABLE once closed, else what the proposer finds
        wrong; `ValueError` when the history became shorter.
        """
        began = self._clock()
        async with self._turn:
            self._check_open()
            try:
                draft = await self._next(history, _Block(assumed, block_size, drawing))
                self._check_open()
            finally:
                if self._closed:
                    # A piece of the history may be in the proposer's thread still.
                    await self._giver.close()
                    self._give_back()
        return Draft(
            draft.token_ids,
            compute_seconds=draft.compute_seconds,
            round_trip_seconds=self._clock() - began,
            diffusion_step_count=draft.diffusion_step_count,
            forward_pass_count=draft.forward_pass_count,
        )

    def open(self, history: Sequence[int]) -> None:
        """Nothing takes time before: the proposer is here."""

    def rest(self) -> None:
        """Nothing is kept elsewhere."""

    async def close(self) -> None:
        """Ends the source, which lets go of the proposer; a draft in flight fails: UNREACHABLE."""
        self._closed = True
        await self._giver.close()
        await self._catching_up.close()
        self._open_state, self._runner = _refused, always_inline
        self._steps = DraftSteps(always_inline, None)
        # Else the draft that is under way does it.
        if not self._turn.locked():
            self._give_back()

    async def _next(self, history: Sequence[int], block: _Block) -> Draft:
        state = self._state
        if state is not None and self._catching_up.is_under_way:
            state.commit(history[state.length :])
            return Draft(())
        known = state.length if state is not None else 0
        coming = block.size + len(block.assumed)
        if not await self._giver.given(history, known, coming, self._take):
            return Draft(())
        state = self._state
        known = state.length if state is not None else 0
        fresh = self._fresh_features()
        taken_in = max(len(history) - known, len(fresh[1]) if fresh is not None else 0)
        try:
            draft = await self._steps.run(self._proposing(history, block, fresh), taken_in)
        except asyncio.CancelledError:
            # The step goes on in its thread, and the next one waits for it.
            if self._state is not None:
                self._state.take_back()
            raise
        if fresh is not None:
            self._features_end = max(self._features_end, fresh[0] + len(fresh[1]))
        state = self._state
        if not draft.token_ids and state is not None and state.is_behind and not self._closed:
            self._catching_up.begin(state, self._runner(LONG))
        return draft

    async def _take(self, token_ids: Sequence[int], numbers: KeysValues) -> None:
        """Has the state take tokens with their keys and values, in the proposer's thread."""

        def take() -> None:
            if self._state is None:
                self._state = self._open_state(())
            first = self._state.length
            self._state.commit(token_ids)
            self._state.take_keys_values(first, len(token_ids), numbers)

        await self._runner(len(token_ids))(take)

    def _give_back(self) -> None:
        """No step of the state runs now."""
        state, self._state = self._state, None
        if state is not None:
            state.close()

    def _fresh_features(self) -> tuple[int, ContextVectors] | None:
        """The vectors that the state may not know; None for a proposer that needs none."""
        if self._features is None or not self._needs_features:
            return None
        return self._features(self._features_end)

    def _proposing(
        self,
        history: Sequence[int],
        block: _Block,
        fresh: tuple[int, ContextVectors] | None,
    ) -> Forwarding[Draft]:
        """Runs in the proposer's thread: brings the state up to date, then drafts."""
        state = self._state
        if state is None:
            state = self._open_state(history)
            self._state = state
        elif state.length > len(history):
            raise ValueError(
                f"the history has {len(history)} tokens, {state.length} were seen before"
            )
        else:
            state.commit(history[state.length :])
        if fresh is not None:
            # What a proposer with an encoder opens; to look would take longer than to ask.
            cast(ConditionedDraftState, state).take_features(*fresh)
        return (yield from self._steps.drafting(state, block.assumed, block.size, 0, block.drawing))

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


def _refused(_history: Sequence[int]) -> DraftState:
    """Stands for `Proposer.open` of a source that was closed."""
    raise _closed()


def _closed() -> DraftFailed:
    return DraftFailed(DraftFaultKind.UNREACHABLE, "the proposer's source was closed")
