"""How far a request's prompts are read, as the nodes that read them tell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from kakeya import AsyncSession, KakeyaError

LONG_PROMPT_TOKENS = 512
"""Shorter ones travel with the call that opens their session, whose name is known after it."""
LOOK_SECONDS = 1.0
"""The longest wait for a node's answer: what happens meanwhile is told so much later."""


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """Tokens of all prompts, and the seconds since the first of them was begun.

    `processed` of `total` are read; the first `cached` were there already, and count.
    """

    total: int
    cached: int
    processed: int
    seconds: float

    def told(self) -> dict[str, int]:
        """As the server of llama.cpp names it in the `prompt_progress` of a chunk."""
        return {
            "total": self.total,
            "cache": self.cached,
            "processed": self.processed,
            "time_ms": round(1000.0 * self.seconds),
        }


@dataclass(slots=True)
class _Prompt:
    """One of them; `session` is that which reads it now."""

    length: int
    cached: int = 0
    processed: int = 0
    session: AsyncSession | None = None


class PromptReading:
    """The prompts of one request, from the first token that is read to the last."""

    def __init__(self, lengths: Sequence[int], clock: Callable[[], float] = time.monotonic) -> None:
        """`lengths` are the prompts' tokens; `clock` gives monotonic seconds."""
        self._prompts = [_Prompt(length) for length in lengths]
        self._clock = clock
        self._began_at = clock()
        self._over_at: float | None = None
        self._is_known = False

    @contextmanager
    def by(self, number: int, session: AsyncSession, cached: int = 0) -> Iterator[None]:
        """The prompt `number` is appended to `session`, which has its first `cached` tokens."""
        prompt = self._prompts[number]
        prompt.cached = prompt.processed = cached
        prompt.session = session
        self._is_known = True
        try:
            yield
        finally:
            prompt.session = None

    def read(self, number: int, cached: int) -> None:
        """The prompt `number` is read; its first `cached` tokens had been there."""
        prompt = self._prompts[number]
        prompt.cached, prompt.processed = cached, prompt.length
        self._is_known = True
        if self.is_over:
            self._over_at = self._clock()

    @property
    def is_over(self) -> bool:
        """Whether all are read."""
        return all(each.processed == each.length for each in self._prompts)

    @property
    def known(self) -> PromptProgress | None:
        """As was told last; None where nothing was, as while a short prompt is read."""
        if not self._is_known:
            return None
        return PromptProgress(
            total=sum(each.length for each in self._prompts),
            cached=sum(each.cached for each in self._prompts),
            processed=sum(each.processed for each in self._prompts),
            seconds=(self._clock() if self._over_at is None else self._over_at) - self._began_at,
        )

    async def look(self) -> None:
        """Asks the nodes. One that does not tell now leaves what was known of it."""
        # The session goes on elsewhere then, or its append says why it does not.
        with suppress(KakeyaError, TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                for prompt in self._prompts:
                    if prompt.session is not None:
                        await _look(prompt, prompt.session)


async def _look(prompt: _Prompt, session: AsyncSession) -> None:
    computed = (await session.info()).computed_token_count
    if prompt.session is not session:
        return
    if computed < prompt.cached:
        # What was there had been given to another session, or was lost: all is computed again.
        prompt.cached = 0
    # Of a whole prompt the last token is computed with what comes behind it.
    prompt.processed = min(computed, prompt.length - 1)
