"""Memory for sessions of a registry, taken from those that give way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic

from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.memory.eviction import chosen_to_free, freed_together
from kakeya_fleet.engine.memory.refusals import Shortage
from kakeya_fleet.engine.sessions import making_way
from kakeya_fleet.engine.sessions.making_way import Asking
from kakeya_fleet.engine.sessions.refused_rooms import RefusedRooms
from kakeya_fleet.engine.sessions.session_record import KvBudget, Opened, SessionRecord


def fitting(budget: KvBudget, spec: CacheSpec, smaller: CacheSpec | None) -> CacheSpec:
    """The smaller one, where there is one and the other's memory is not free.

    Raises what the verifier says of either.
    """
    if smaller is None:
        return spec
    # What cannot be kept so is refused now, and not in the middle of an answer.
    budget.verifier.bytes_needed(smaller)
    return spec if budget.has_free(budget.verifier.bytes_needed(spec)) else smaller


@dataclass(frozen=True, slots=True)
class MemoryAdmission(Generic[Opened]):
    """Who gives way follows `making_way`; nobody does in vain. Its registry's lock is held.

    `of(budget)` are a verifier's sessions, `evict(record)` ends one, `on_rest(record, nbytes)`
    hears of one that gave so many bytes and stays; `clock` gives monotonic seconds. `refused` is to
    hear of all that changes.
    """

    of: Callable[[KvBudget], list[SessionRecord[Opened]]]
    evict: Callable[[SessionRecord[Opened]], None]
    on_rest: Callable[[SessionRecord[Opened], int], None]
    clock: Callable[[], float]
    min_idle_seconds: float
    refused: RefusedRooms = field(default_factory=RefusedRooms)

    def available_bytes(self, budget: KvBudget) -> int:
        """Bytes that a new session may take now, with those of idle ones."""
        idle = making_way.idle(
            self.of(budget), now=self.clock(), min_idle_seconds=self.min_idle_seconds
        )
        freed = freed_together(record.session.slabs for record in idle)
        return max(0, budget.nbytes - budget.used_bytes + freed)

    def check(self, budget: KvBudget, needed: int, owner: str) -> None:
        """Raises what `for_new` would, and takes nothing."""
        now = self.clock()
        shortage = self.refused.shortage(budget, needed, owner, now)
        if shortage is None:
            if self._giving(budget, needed, Asking(owner, needed, budget.nbytes)) is not None:
                return
            wait = self._wait_seconds(budget)
            shortage = self.refused.remember(budget, needed, owner, now, wait)
        raise shortage.of_a_new_session(0)

    def for_new(
        self,
        budget: KvBudget,
        needed: int,
        owner: str,
        origin: SessionRecord[Opened] | None = None,
    ) -> None:
        """For a new session of `owner`, or a fork of `origin`, which is held.

        Raises `OutOfKvMemory`.
        """
        if not self._taken(budget, needed, Asking(owner, needed, budget.nbytes)):
            beside = origin.session.memory_bytes if origin is not None else 0
            raise self._shortage(budget, needed).of_a_new_session(beside)

    def to_wake(self, budget: KvBudget, needed: int, owner: str) -> None:
        """For one of `owner` at rest, whose operation holds it. Raises `OutOfKvMemory`."""
        if not self._taken(budget, needed, Asking(owner, needed, budget.nbytes)):
            raise self._shortage(budget, needed).of_waking()

    def to_grow(self, budget: KvBudget, needed: int) -> None:
        """For one whose operation holds it. Raises `OutOfKvMemory`."""
        if not self._taken(budget, needed):
            raise self._shortage(budget, needed).of_growth()

    def _taken(self, budget: KvBudget, needed: int, asking: Asking | None = None) -> bool:
        """Whether `needed` bytes are free, idle sessions at rest or ended."""
        budget.send_guest_away(needed)
        giving = self._giving(budget, needed, asking)
        for record in giving or ():
            nbytes = record.session.memory_bytes
            if record.session.rest():
                self.on_rest(record, nbytes)
            else:
                self.evict(record)
        return giving is not None

    def _giving(
        self, budget: KvBudget, needed: int, asking: Asking | None = None
    ) -> list[SessionRecord[Opened]] | None:
        """Whose memory would leave `needed` bytes free; None if all that may go would not do."""
        missing = needed - (budget.nbytes - budget.used_bytes)
        if missing <= 0:
            return []
        idle = making_way.for_memory(
            self.of(budget),
            now=self.clock(),
            min_idle_seconds=self.min_idle_seconds,
            asking=asking,
        )
        chosen = chosen_to_free([record.session.slabs for record in idle], missing)
        return None if chosen is None else [idle[index] for index in chosen]

    def _shortage(self, budget: KvBudget, needed: int) -> Shortage:
        wait = self._wait_seconds(budget)
        return Shortage(needed, budget.free_bytes, budget.nbytes, max(1.0, wait))

    def _wait_seconds(self, budget: KvBudget) -> float:
        """Until the next session may give way, if none is used meanwhile."""
        now = self.clock()
        waits = [
            making_way.idle_seconds_to_rest(record, self.min_idle_seconds)
            - record.idle_seconds(now)
            for record in self.of(budget)
            if not (record.held or record.session.is_resting) and record.session.memory_bytes
        ]
        return min((wait for wait in waits if wait > 0.0), default=self.min_idle_seconds)
