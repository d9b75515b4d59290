"""Drafts from a proposer in the same process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from engine.errors import DraftFailed, DraftFaultKind
from engine.proposers.contract import Draft, DraftState, Proposer
from engine.running import Result, Runner


async def run_inline(step: Callable[[], Result], /) -> Result:
    """The `Runner` of a proposer too quick to be worth a thread."""
    return step()


class LocalDraftSource:
    """A `DraftSource` over a `Proposer` in this process, for one session.

    `run` runs the proposer's steps: inline for `ngram`, in its own thread for a
    model. It keeps the order of the calls, and so do the answers.
    """

    def __init__(
        self,
        proposer: Proposer,
        run: Runner = run_inline,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._proposer = proposer
        self._run = run
        self._clock = clock
        self._state: DraftState | None = None
        self._closed = False

    async def draft(self, history: Sequence[int], assumed: Sequence[int], block_size: int) -> Draft:
        """A draft that continues `history` + `assumed`.

        Raises `DraftFailed` (UNREACHABLE) once closed, `ValueError` when the
        history became shorter.
        """
        began = self._clock()
        self._check_open()
        draft = await self._run(lambda: self._propose(history, assumed, block_size))
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
