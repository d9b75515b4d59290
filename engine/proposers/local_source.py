"""Drafts from a proposer in the same process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from engine.errors import DraftFailed, DraftFaultKind
from engine.proposers.contract import Draft, DraftState, Proposer
from engine.running import Result, Runner


async def run_inline(step: Callable[[], Result], /) -> Result:
    """The `Runner` of a proposer too quick to be worth a thread."""
    return step()


def always_inline(_token_count: int) -> Runner:
    """`run_inline`, however many tokens a step takes in."""
    return run_inline


class LocalDraftSource:
    """A `DraftSource` over a `Proposer` in this process, for one session.

    `runner(token_count)` runs a step that takes in so many tokens: inline for
    `ngram` unless they are many, in its own thread for a model. One step runs
    at a time, in the order of the calls.
    """

    def __init__(
        self,
        proposer: Proposer,
        runner: Callable[[int], Runner] = always_inline,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._proposer = proposer
        self._runner = runner
        self._clock = clock
        self._turn = asyncio.Lock()
        self._state: DraftState | None = None
        self._closed = False

    async def draft(self, history: Sequence[int], assumed: Sequence[int], block_size: int) -> Draft:
        """A draft that continues `history` + `assumed`.

        Raises `DraftFailed` (UNREACHABLE) once closed, `ValueError` when the
        history became shorter.
        """
        began = self._clock()
        async with self._turn:
            self._check_open()
            known = self._state.length if self._state is not None else 0
            run = self._runner(len(history) - known)
            draft = await run(lambda: self._propose(history, assumed, block_size))
            self._check_open()
        return Draft(
            draft.token_ids,
            compute_seconds=draft.compute_seconds,
            round_trip_seconds=self._clock() - began,
            diffusion_step_count=draft.diffusion_step_count,
            forward_pass_count=draft.forward_pass_count,
        )

    async def close(self) -> None:
        """Ends the source; a draft in flight fails with UNREACHABLE."""
        self._closed = True
        self._state = None

    def _propose(self, history: Sequence[int], assumed: Sequence[int], block_size: int) -> Draft:
        """Runs in the proposer's thread: brings the state up to date, then drafts."""
        state = self._state
        if state is None:
            state = self._proposer.open(history)
            self._state = state
        elif state.length > len(history):
            raise ValueError(
                f"the history has {len(history)} tokens, {state.length} were seen before"
            )
        else:
            state.commit(history[state.length :])
        return state.propose(assumed, block_size, 0)

    def _check_open(self) -> None:
        if self._closed:
            raise DraftFailed(DraftFaultKind.UNREACHABLE, "the proposer's source was closed")
