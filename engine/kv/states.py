"""The recurrent layers' states of one cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from kakeya_fleet.engine.kv.kernels import Kernels, Measured
from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool

KIND = "states"
"""Of their slabs in the pool."""

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


class HeldStates(Generic[AnyState]):
    """One cache's states in their slab; of a model without recurrent layers none."""

    def __init__(
        self, slab: Slab[States[AnyState]] | None, kernels: Kernels[Any], pool: SlabPool[Any]
    ) -> None:
        self._slab = slab
        self._kernels = kernels
        self._pool = pool

    @classmethod
    def take(
        cls,
        nbytes: int,
        new_states: Callable[[], dict[int, AnyState]],
        kernels: Kernels[Any],
        pool: SlabPool[Any],
    ) -> HeldStates[AnyState]:
        """New states of `nbytes`; none for 0. Raises `OutOfKvMemory` with nothing taken."""
        slab: Slab[States[AnyState]] | None = None
        if nbytes:
            slab = pool.take(KIND, nbytes, lambda: States(new_states()))
        return cls(slab, kernels, pool)

    @property
    def by_layer(self) -> dict[int, AnyState]:
        """The states by layer."""
        return self._slab.payload.by_layer if self._slab is not None else {}

    @property
    def slabs(self) -> list[Slab[Any]]:
        """What they hold of the pool."""
        return [self._slab] if self._slab is not None else []

    @property
    def freed_bytes(self) -> int:
        """Bytes that the pool gets back when these are released now."""
        return sum(self._pool.freed_by(slab) for slab in self.slabs)

    def truncate(self, kept: int) -> None:
        """Keeps the first `kept` tokens of the last forward."""
        for state in self.by_layer.values():
            state.truncate(kept)

    def settle(self, kept: int) -> None:
        """Makes the first `kept` tokens of the last forward final."""
        for state in self.by_layer.values():
            # What a state holds beyond them is of a forward that failed.
            state.truncate(kept)
            state.settle()

    def fork(self, kept: int) -> HeldStates[AnyState]:
        """Copies after the first `kept` tokens of the last forward, all final.

        Raises `OutOfKvMemory` with nothing taken.
        """
        forked: Slab[States[AnyState]] | None = None
        if self._slab is not None:
            held = self._slab
            forked = self._pool.take(KIND, held.nbytes, lambda: held.payload.fork(kept))
            for state in forked.payload.by_layer.values():
                self._kernels.settle(state.arrays)
        return HeldStates(forked, self._kernels, self._pool)

    def release(self) -> None:
        """Gives the memory back; nobody takes it as it is."""
        for slab in self.slabs:
            self._pool.give_back(slab, keep=False)
        self._slab = None
