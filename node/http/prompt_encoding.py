"""A prompt's text to ids, with no text longer than the model can read.

A tokenizer takes seconds a megabyte and some ten times the text's memory. What is certainly too
long is refused by its characters; the rest is encoded in threads, without the interpreter's lock,
and of long texts one at a time, so that a node that encodes answers its peers meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kakeya import ModelOffer
from kakeya.text import TextCodec
from kakeya_fleet.node.http.refusal import HttpRefusal

Made = TypeVar("Made")

LONG_CHARACTERS = 1 << 16
"""Longer texts are encoded one after another: a tenth of a second or more each."""


@dataclass(frozen=True, slots=True)
class PromptBound:
    """What a model's context can hold of a prompt that is called `parameter` in its request."""

    model_id: str
    context_length: int
    parameter: str

    @classmethod
    def of(cls, offer: ModelOffer, parameter: str) -> PromptBound:
        """That of an offered model; no bound where its card tells no context."""
        return cls(offer.model_id, offer.context_length, parameter)

    def ids(self, codec: TextCodec, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """The text's ids. Raises `HttpRefusal` for more than the context, before it lists them."""
        # No token stands for more characters than the longest one of the vocabulary has.
        longest = self.context_length * codec.longest_token_characters
        if self.context_length and len(text) > longest:
            raise self.refusal(
                f"{len(text):,} characters of the prompt are more than the {longest:,} that its"
                " tokens can stand for"
            )
        encoding = codec.encoding(text, add_special_tokens=add_special_tokens)
        if self.context_length and len(encoding) > self.context_length:
            raise self.refusal(f"{len(encoding)} of the prompt do not fit")
        return tuple(encoding.ids)

    def refusal(self, problem: str) -> HttpRefusal:
        """A prompt, or a prompt and its answer, that the context does not hold."""
        return HttpRefusal(
            "CONTEXT_EXCEEDED",
            f"{self.model_id} has a context of {self.context_length} tokens: {problem}; shorten the"
            " prompt or ask for fewer",
            parameter=self.parameter,
        )


@dataclass(slots=True)
class PromptThreads:
    """Where prompts are encoded. Belongs to one event loop."""

    _long: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    async def run(self, characters: int, work: Callable[[], Made]) -> Made:
        """What `work` makes of a text of so many characters, in a thread.

        Work that waits for its turn and whose caller has left is not begun.
        """
        if characters <= LONG_CHARACTERS:
            return await asyncio.to_thread(work)
        await self._long.acquire()
        working = asyncio.ensure_future(asyncio.to_thread(work))
        # A thread cannot be stopped: the next one's turn is when it is done.
        working.add_done_callback(self._done)
        return await asyncio.shield(working)

    def _done(self, working: asyncio.Future[Made]) -> None:
        self._long.release()
        if not working.cancelled():
            # Nobody may be left to hear of it.
            working.exception()
