"""A registry of sessions, memory for three of them, and a clock that is set by hand."""

from __future__ import annotations

import itertools

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.sessions.ended import EndReason
from kakeya_fleet.engine.sessions.places import Places
from kakeya_fleet.engine.sessions.session_record import (
    Activity,
    KvBudget,
    SessionOptions,
    SessionRecord,
)
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from tests.support import hash_verifier as hashing

SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
BYTES = 16 * (2 + 6 + 16)


class SessionRoom:
    """A registry, a verifier with room for three sessions, and a clock that is set by hand."""

    def __init__(self, budget: int = 3 * BYTES, places: Places | None = None) -> None:
        self.now = 1000.0
        self.ended: list[tuple[str, EndReason]] = []
        self.rested: list[str] = []
        numbers = itertools.count(1)
        self.registry: SessionRegistry[str] = SessionRegistry(
            clock=lambda: self.now,
            ids=lambda: f"s{next(numbers)}",
            ttl_seconds=600.0,
            min_idle_seconds=60.0,
            on_end=lambda record, reason: self.ended.append((record.session_id, reason)),
            on_rest=lambda record, _: self.rested.append(record.session_id),
            places=places,
        )
        self.verifier, self.budget = self.another(budget)

    def another(self, budget: int) -> tuple[hashing.HashVerifier, KvBudget]:
        """One more verifier and its budget."""
        verifier = hashing.HashVerifier()
        return verifier, self.registry.add_verifier(verifier, budget)

    def create(
        self,
        spec: CacheSpec,
        options: SessionOptions | None = None,
        request_id: str = "",
        owner: str = "",
        smaller: CacheSpec | None = None,
    ) -> SessionRecord[str]:
        return self.registry.create(
            self.budget, spec, options, request_id, owner=owner, smaller=smaller
        )

    def listed(self) -> list[str]:
        """Ids of all sessions, in the order of their making."""
        return list(self.registry._records)

    def awake(self) -> list[str]:
        """Ids of those that hold memory, in the order of their making."""
        records = self.registry._records.values()
        return [record.session_id for record in records if not record.session.is_resting]

    def count(self, reason: EndReason) -> int:
        return [why for _, why in self.ended].count(reason)


def doing(record: SessionRecord[str]) -> Activity:
    """Asked anew each time: checkers of types hold a property for what it was."""
    return record.activity
