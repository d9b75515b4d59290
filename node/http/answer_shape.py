"""The contract of the shapes of answers: whole, and as chunks of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from kakeya_fleet.node.http.answering import Delta, End
from kakeya_fleet.node.http.prompt_reading import PromptProgress

Chunk: TypeAlias = dict[str, object]


class AnswerShape(Protocol):
    """Turns what happens into bodies. One object serves one request."""

    def opening(self) -> Sequence[Chunk]:
        """What a stream begins with."""
        ...

    def progress(self, progress: PromptProgress) -> Sequence[Chunk]:
        """How far the prompts are read, for one who asked; nothing where that cannot be asked."""
        ...

    def delta(self, delta: Delta) -> Sequence[Chunk]:
        """The chunks of a piece."""
        ...

    def waiting(self) -> Sequence[Chunk]:
        """What a stream says that has nothing to say; nothing where its dialect has comments."""
        ...

    def end(self, end: End) -> Sequence[Chunk]:
        """The chunks of an answer's end."""
        ...

    def closing(self, ends: Sequence[End]) -> Sequence[Chunk]:
        """What a stream ends with."""
        ...

    def whole(self, deltas: Sequence[Delta], ends: Sequence[End]) -> Chunk:
        """The body of all answers together."""
        ...
