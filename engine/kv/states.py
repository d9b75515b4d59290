"""The recurrent layers' states of one cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from kakeya_fleet.engine.kv.kernels import Measured

Held = TypeVar("Held", bound=Measured, covariant=True)


class State(Protocol[Held]):
    """A recurrent layer's state."""

    @property
    def arrays(self) -> Sequence[Held]:
        """All that it holds."""
        ...

    def truncate(self, count: int) -> None:
        """Keeps the first `count` tokens of the last forward."""
        ...

    def settle(self) -> None:
        """Makes the last forward's tokens final."""
        ...

    def fork(self, kept: int) -> Self:
        """A state of its own after the first `kept` tokens of the last forward, all final."""
        ...


AnyState = TypeVar("AnyState", bound=State)  # type: ignore[type-arg]  # of whichever arrays


@dataclass(frozen=True, slots=True)
class States(Generic[AnyState]):
    """What a cache's slab of states holds, by layer."""

    by_layer: dict[int, AnyState]

    def fork(self, kept: int) -> States[AnyState]:
        """Copies with the first `kept` tokens of the last forward."""
        return States({layer: state.fork(kept) for layer, state in self.by_layer.items()})
