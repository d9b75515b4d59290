"""A model reads a long history step by step, while its session goes on without drafts."""

from __future__ import annotations

import asyncio

from kakeya_fleet.engine.contracts.blocking import Runner
from kakeya_fleet.engine.contracts.draft import DraftState


class CatchingUp:
    """Of one session's state. Belongs to the event loop's thread.

    Between two of its steps other sessions' drafts run. Nobody may draft with the state while it
    `is_under_way`.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the state is behind. Raises once what ended the reading, as `read` does."""
        task = self._task
        if task is None or not task.done():
            return task is not None
        self._task = None
        task.result()
        return False

    def begin(self, state: DraftState, run: Runner) -> None:
        """Reads until the state is not behind; `run` runs a step that takes long."""
        if not self.is_under_way:
            self._task = asyncio.create_task(_read(state, run), name="draft-read-history")

    async def close(self) -> None:
        """Ends it; no step runs when this returns."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            # What it failed with is nobody's concern any more.
            await asyncio.gather(task, return_exceptions=True)


async def _read(state: DraftState, run: Runner) -> None:
    while state.is_behind:
        await run(state.read)
