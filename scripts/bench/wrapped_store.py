"""An evicted store around another one, which does what is asked for."""

from __future__ import annotations

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedQueries,
    EvictedStore,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec


class WrappedStore:
    """An `EvictedStore` for those that look at some of its calls."""

    def __init__(self, store: EvictedStore, shape: EvictedShape) -> None:
        self._store = store
        self._shape = shape

    @property
    def spec(self) -> RestorerSpec:
        """Which restorer."""
        return self._store.spec

    @property
    def encoder(self) -> FeatureEncoder | None:
        """What makes context vectors."""
        return self._store.encoder

    @property
    def length(self) -> int:
        """The positions from `sink` to this, exclusive, are deposited."""
        return self._store.length

    @property
    def stored_bytes(self) -> int:
        """Bytes of the tensors that keep them, as far as the other end has told."""
        return self._store.stored_bytes

    def deposit(self, first: int, evicted: Evicted) -> None:
        """Takes final positions."""
        self._store.deposit(first, evicted)

    def begin(self, queries: EvictedQueries) -> None:
        """Starts attention."""
        self._store.begin(queries)

    def finish(self) -> PartialAttention:
        """The oldest result."""
        return self._store.finish()

    def abandon(self) -> None:
        """Drops what nobody asked for."""
        self._store.abandon()

    def fork(self, length: int) -> EvictedStore:
        """A store that is not wrapped."""
        return self._store.fork(length)

    def release(self) -> None:
        """Gives the memory back."""
        self._store.release()
