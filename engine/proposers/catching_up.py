"""A model reads a long history step by step, while its session goes on without drafts."""

from __future__ import annotations

import asyncio

from kakeya_fleet.engine.contracts.blocking import Runner
from kakeya_fleet.engine.contracts.draft import DraftState
from kakeya_fleet.engine.errors import DraftFailed


class CatchingUp:
    """Of one session's state. Belongs to the event loop's thread.

    Between two of its steps other sessions' drafts run. Nobody may draft with the state while it
    `is_under_way`.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._failure: DraftFailed | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the state is behind. Raises `DraftFailed` once with what ended the reading."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return self._task is not None

    def begin(self, state: DraftState, run: Runner) -> None:
        """Reads until the state is not behind; `run` runs a step that takes long."""
        if self._task is None:
            self._task = asyncio.create_task(self._read(state, run), name="draft-read-history")

    async def close(self) -> None:
        """Ends it; no step runs when this returns."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _read(self, state: DraftState, run: Runner) -> None:
        try:
            while state.is_behind:
                await run(state.read)
        except DraftFailed as failure:
            self._failure = failure
        finally:
            self._task = None
