"""An answer as text: pieces, as its tokens commit."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from types import TracebackType
from typing import Protocol, Self

from kakeya.errors import SessionBusy, StreamConsumed, UnexpectedError
from kakeya.generated.values import GenerationDone
from kakeya.text import TextCodec
from kakeya.values import Tokens

LONGEST_ANSWER = 2048
"""Tokens of an answer that is not told another bound."""


class Words:
    """The text of a stream of ids, but for special ones and those that end an answer."""

    def __init__(self, codec: TextCodec, stop_token_ids: Iterable[int]) -> None:
        self._stream = codec.detokenizer(skip_special_tokens=True)
        self._stops = frozenset(stop_token_ids)
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """All that was returned."""
        return "".join(self._pieces)

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that the ids complete; empty while a character is incomplete."""
        return self._kept(self._stream.push(each for each in token_ids if each not in self._stops))

    def flush(self) -> str:
        """The rest, with U+FFFD for a character that the end has cut."""
        return self._kept(self._stream.flush())

    def _kept(self, piece: str) -> str:
        if piece:
            self._pieces.append(piece)
        return piece


class Speech(Protocol):
    """What is behind an answer."""

    @property
    def done(self) -> GenerationDone | None:
        """The end of its generation; None until that came."""
        ...

    async def begin(self, pieces: Pieces) -> tuple[AsyncIterator[Tokens], Words]:
        """Asks for the answer: its tokens, and what makes text of them."""
        ...

    async def leave(self) -> None:
        """Leaves the generation, where there is one."""
        ...

    def end(self) -> None:
        """Called when nothing more will come; not where the pieces are merely dropped."""
        ...


class Floor:
    """One answer at a time: it has the floor until it ended, was left or was dropped."""

    def __init__(self) -> None:
        self._pieces: weakref.ref[Pieces] | None = None

    def check(self) -> None:
        """Raises SessionBusy while an answer comes."""
        pieces = self._pieces() if self._pieces is not None else None
        if pieces is not None and not pieces.ended:
            raise SessionBusy("an answer still comes: read it to its end, or leave its iterator")

    def take(self, pieces: Pieces) -> None:
        """Gives the floor to these pieces. Raises SessionBusy."""
        self.check()
        self._pieces = weakref.ref(pieces)


class Pieces(AsyncIterator[str]):
    """The iteration of an answer. Dropping it leaves the answer."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._tokens: AsyncIterator[Tokens] | None = None
        self._words: Words | None = None
        self._begins = False
        self._left = False
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended

    async def aclose(self) -> None:
        """Leaves the answer; a second time does nothing."""
        self._left = True
        # What asks at this moment comes to its end first: positions are known then.
        if not self._begins:
            await self._speech.leave()
            self._end()

    async def __anext__(self) -> str:
        try:
            piece = await self._next()
        except BaseException:
            self._end()
            raise
        if not piece:
            self._end()
            raise StopAsyncIteration
        return piece

    async def _next(self) -> str:
        """The next piece; empty at the end."""
        if self._left or self._ended:
            return ""
        if self._tokens is None or self._words is None:
            self._begins = True
            try:
                self._tokens, self._words = await self._speech.begin(self)
            finally:
                self._begins = False
        if not self._left:
            async for tokens in self._tokens:
                piece = self._words.push(tokens.token_ids)
                if piece:
                    return piece
        return "" if self._left or self._speech.done is None else self._words.flush()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            # Holds the call on the node.
            self._tokens = None
            self._speech.end()


class AsyncAnswer(AsyncIterable[str]):
    """Text as it commits: `async for piece in chat.say("...")`.

    A piece is some whole characters, never empty; special tokens, and what ended the
    answer, are none of it. Iterated once. Nothing is sent before the iteration begins;
    leaving it by `break`, an exception, a cancellation, `aclose` or garbage collection
    stops the work on the node within a block.
    """

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._started = False
        # Only the iterator holds the call, so that dropping it leaves the answer.
        self._pieces: weakref.ref[Pieces] | None = None

    @property
    def done(self) -> GenerationDone | None:
        """How the answer ended, with its statistics; None until the iteration came to it."""
        return self._speech.done

    async def text(self) -> str:
        """Waits for the whole answer. Raises what the iteration raises."""
        text = "".join([piece async for piece in self])
        if self.done is None:
            raise UnexpectedError("the answer was left before its end")
        return text

    async def aclose(self) -> None:
        """Leaves the answer; a second time does nothing."""
        self._started = True
        pieces = self._pieces() if self._pieces is not None else None
        if pieces is not None:
            await pieces.aclose()

    def __aiter__(self) -> AsyncIterator[str]:
        if self._started:
            raise StreamConsumed("an answer is read once: say something again for another one")
        self._started = True
        pieces = Pieces(self._speech)
        self._pieces = weakref.ref(pieces)
        return pieces

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
