"""A conversation as one history of token ids: what each turn keeps of it, and what it appends.

A turn renders the whole conversation with the model's template. Where that text goes on
from the text of the history, only the ids of the rest are appended; a template that
writes earlier turns anew (one that trims an answer, say) makes the history go back to
the longest prefix that still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Protocol, Self

USER = "user"
ASSISTANT = "assistant"
SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Message:
    """What was said, and by whom: `system`, `user` or `assistant`."""

    role: str
    content: str


class Codec(Protocol):
    """Text to ids and back, special tokens as text included."""

    def encode(self, text: str) -> list[int]:
        """Ids of the text, without tokens that the text has not."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Text of the ids."""
        ...


Render = Callable[[Sequence[Message]], str]
"""The text of a conversation, up to where the next answer begins."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What becomes of the history: its first `keep` ids stay, then come `append`."""

    keep: int
    append: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """The history's first `length` ids are those of `text`."""

    length: int
    text: str


def plain_text(messages: Sequence[Message]) -> str:
    """Turns joined plainly, for a model without a template: each ends with a line's end."""
    return "".join(f"{message.content}\n" for message in messages)


class Conversation:
    """Messages, and the ids that stand for them.

    `ask` says what to do with the session's history, `answered` what the verifier
    committed since; one follows the other.
    """

    def __init__(self, codec: Codec, render: Render, *, system: str = "") -> None:
        self._codec = codec
        self._render = render
        self._system = system
        # Never changed in place: a copy of this object is a conversation of its own.
        self._messages: tuple[Message, ...] = ()
        self._ids: tuple[int, ...] = ()
        self._marks: tuple[Mark, ...] = (Mark(0, ""),)

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was said, oldest first, the system's words before."""
        return tuple(self._all(self._messages))

    @property
    def turn_count(self) -> int:
        """Questions that were asked."""
        return sum(message.role == USER for message in self._messages)

    @property
    def system(self) -> str:
        """The system's words."""
        return self._system

    @system.setter
    def system(self, text: str) -> None:
        self._system = text

    def ask(self, text: str, history: Sequence[int]) -> Turn:
        """The person's next message: what the session, which holds `history`, keeps and appends.

        Raises what `render` raises, and is as before then.
        """
        before = self._messages
        self._messages = (*before, Message(USER, text))
        try:
            return self._continue(history)
        except BaseException:
            self._messages = before
            raise

    def answered(self, token_ids: Sequence[int], said: str | None = None) -> str:
        """What the verifier committed after the latest turn, as text; may have been stopped.

        `said` is that text where it is not all that the ids decode to: without an id that
        ended it, or without the bytes of a character that was cut.
        """
        text = self._codec.decode(token_ids, skip_special_tokens=True) if said is None else said
        self._messages += (Message(ASSISTANT, text),)
        self._ids += tuple(token_ids)
        whole = self._codec.decode(token_ids, skip_special_tokens=False)
        self._marks += (Mark(len(self._ids), self._marks[-1].text + whole),)
        return text

    def take_back(self) -> Message | None:
        """Forgets the latest question and its answer; the question, None when there is none."""
        while self._messages:
            message = self._messages[-1]
            self._messages = self._messages[:-1]
            if message.role == USER:
                return message
        return None

    def first_turns(self, count: int) -> Self:
        """A conversation of its own that begins with the first `count` turns of this one."""
        twin = copy(self)
        while twin.turn_count > count:
            twin.take_back()
        return twin

    def _continue(self, history: Sequence[int]) -> Turn:
        text = self._render(self._all(self._messages))
        shared = shared_length(self._ids, history)
        held = [
            mark for mark in self._marks if mark.length <= shared and text.startswith(mark.text)
        ]
        mark = held[-1]
        turn = Turn(mark.length, tuple(self._codec.encode(text[len(mark.text) :])))
        if mark.length < len(history):
            # The text as a whole may have longer a prefix in ids than the marks know.
            whole = self._codec.encode(text)
            keep = shared_length(whole, history)
            if keep > mark.length:
                held = [each for each in held if each.length <= keep]
                turn = Turn(keep, tuple(whole[keep:]))
        self._ids = (*history[: turn.keep], *turn.append)
        self._marks = (*held, Mark(len(self._ids), text))
        return turn

    def _all(self, messages: Sequence[Message]) -> list[Message]:
        before = [Message(SYSTEM, self._system)] if self._system else []
        return [*before, *messages]


def shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids both begin with."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))
