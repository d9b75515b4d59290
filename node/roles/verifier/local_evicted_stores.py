"""What a session has evicted in its verifier's own process, when no archive is left."""

from __future__ import annotations

from pathlib import Path

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec
from kakeya_fleet.engine.restoration.ranges import RangeStore
from kakeya_fleet.engine.restoration.stores import EvictedStores
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.worker import ModelWorker


class LocalEvictedStores:
    """What `session_restorers.LocalStores` asks for. Belongs to the event loop's thread."""

    def __init__(self, stores: EvictedStores, worker: ModelWorker) -> None:
        """`stores` count in the budget of the verifier whose steps `worker` runs."""
        self._stores = stores
        self._worker = worker

    @classmethod
    def of(cls, served: ServedVerifier) -> LocalEvictedStores | None:
        """Beside a verifier; None where its back end cannot."""
        return cls(served.stores, served.worker) if served.stores is not None else None

    @property
    def arithmetic(self) -> str:
        """Names what computes."""
        return self._stores.arithmetic

    async def make(
        self, shape: EvictedShape, spec: RestorerSpec, map_folder: Path | None, end: int
    ) -> RangeStore:
        """An empty store with the memory for all positions below `end`.

        It counts in the verifier's K/V bytes from now on. Raises `OutOfKvMemory` with
        nothing taken, `ModelUnusable`.
        """
        made: list[RangeStore] = []

        def make() -> None:
            store = self._stores.make(shape, spec, map_folder)
            made.append(store)
            store.reserve(end)

        try:
            await self._worker.run(make)
        except BaseException:
            for store in made:
                store.release()
            raise
        return made[0]
