"""The stores of a node's archives, by the learned maps that it knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind
from kakeya_fleet.engine.restoration.learned_map import LearnedMap, find_map
from kakeya_fleet.engine.restoration.ranges import KeepingStore
from kakeya_fleet.engine.restoration.stores import EvictedStores
from kakeya_fleet.node.roles.archive.opening import Opening
from kakeya_fleet.node.rpc.refusals import RestorerMismatch


class NodeStores:
    """Checks that a session's learned map is the one that is here. Any thread may call."""

    def __init__(self, stores: EvictedStores, drafters: Mapping[str, Path]) -> None:
        """`drafters` are folders of drafters by model id, besides the shipped ones."""
        self._stores = stores
        self._drafters = drafters

    @property
    def budget_bytes(self) -> int:
        """Bytes that the stores may take together."""
        return self._stores.budget_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes that they take now."""
        return self._stores.used_bytes

    @property
    def arithmetic(self) -> str:
        """Names what computes."""
        return self._stores.arithmetic

    def check(self, opening: Opening) -> None:
        """Raises `ModelNotFound`, `TrainedForAnother`, `RestorerMismatch`."""
        self._map_of(opening)

    def make(self, opening: Opening) -> KeepingStore:
        """An empty store. Raises `OutOfKvMemory`, `ModelUnusable`, and what `check` raises."""
        found = self._map_of(opening)
        folder = found.path if found is not None else None
        return self._stores.make(
            opening.shape, opening.restorer, folder, origin=opening.first_position
        )

    def _map_of(self, opening: Opening) -> LearnedMap | None:
        asked = opening.restorer
        if asked.kind is not RestorerKind.PROJECTION:
            return None
        found = find_map(asked.model_id, opening.verifier_digest, self._drafters)
        found.check_verifier("the session's verifier", opening.verifier_digest)
        if found.spec != asked:
            raise RestorerMismatch(
                f"the learned map of {asked.model_id} is another here: its digest is"
                f" {found.spec.digest[:12]}, the session's {asked.digest[:12]}",
                here=found.spec.digest,
                session=asked.digest,
            )
        return found
