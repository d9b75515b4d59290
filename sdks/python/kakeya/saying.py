"""A text that a session continues, and what comes after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from kakeya.answer import Pieces, Words
from kakeya.generated.values import GenerationDone
from kakeya.generation import AsyncGeneration
from kakeya.values import Tokens


class Saying:
    """The `Speech` of a session's answers: its history holds all that there is to keep."""

    def __init__(self, start: Callable[[Pieces], Awaitable[tuple[AsyncGeneration, Words]]]) -> None:
        """`start` appends the text and gives the generation, not yet begun."""
        self._start = start
        self._generation: AsyncGeneration | None = None

    @property
    def done(self) -> GenerationDone | None:
        """See `Speech`."""
        return None if self._generation is None else self._generation.done

    async def begin(self, pieces: Pieces) -> tuple[AsyncIterator[Tokens], Words]:
        """See `Speech`."""
        self._generation, words = await self._start(pieces)
        return aiter(self._generation), words

    async def leave(self) -> None:
        """See `Speech`."""
        if self._generation is not None:
            await self._generation.aclose()

    def end(self) -> None:
        """Nothing is to be put away."""
