"""What a back end brings to a DFlash drafter: its forward, and a session's context."""

from __future__ import annotations

from typing import Protocol, TypeVar

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.contracts.features import ContextVectors


class DraftContext(Protocol):
    """Keys and values of the latest context positions of one session, a bounded number."""

    @property
    def first(self) -> int:
        """The oldest position that is there, `end` when none is."""
        ...

    @property
    def end(self) -> int:
        """The position behind the newest that is there."""
        ...

    @property
    def memory_bytes(self) -> int:
        """Bytes of the tensors that keep them."""
        ...

    def restart(self, position: int) -> None:
        """Forgets all; the next position is `position`."""
        ...


Context = TypeVar("Context", bound=DraftContext)


class DraftModel(Protocol[Context]):
    """A drafter's weights and those of its target's ends. Holds no session's state."""

    @property
    def config(self) -> DFlashConfig:
        """Its shape."""
        ...

    def new_context(self) -> Context:
        """An empty context."""
        ...

    def extend(self, context: Context, vectors: ContextVectors) -> None:
        """Takes context vectors [n, hidden_size] of the positions behind `context.end`."""
        ...

    def draft(self, context: Context, last_token: int, count: int) -> list[int]:
        """The `count` tokens behind `last_token`, whose position is `context.end`."""
        ...
