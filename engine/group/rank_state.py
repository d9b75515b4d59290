"""What a rank tells of its caches and its pools: only what changed since it told last.

Slabs and caches have numbers that all ranks count alike, as they run the same
commands in the same order. A command changes no other slabs than those that the
caches it touches held before it or hold behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kakeya_fleet.engine.contracts.cache import KvCache
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.group.fields import Header, Json
from kakeya_fleet.engine.memory.slab_pool import Slab


@dataclass(slots=True)
class _Known:
    """A slab with its number, and what was told of it last."""

    slab: Slab[Any]
    verifier: int
    number: int
    told: tuple[int, int] | None = None


@dataclass(slots=True)
class HeldCache:
    """A cache by its number, of the verifier `verifier`."""

    cache: KvCache
    verifier: int
    told_slabs: list[int] | None = None


@dataclass(slots=True)
class Touched:
    """What a command touches: the caches by number, and the slabs that they held before."""

    numbers: set[int] = field(default_factory=set)
    slabs: dict[int, tuple[Slab[Any], int]] = field(default_factory=dict)
    """By identity, each with its verifier's number."""

    def add(self, number: int, held: HeldCache) -> None:
        """One more cache: before anything is done to it, or new."""
        self.numbers.add(number)
        self.slabs.update((id(slab), (slab, held.verifier)) for slab in held.cache.slabs)


class RankState:
    """Numbers of slabs, and what the leader knows of them."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._next = 0

    def report(
        self, verifiers: list[Verifier], caches: dict[int, HeldCache], touched: Touched
    ) -> Header:
        """The state behind a command that touched `touched`."""
        living = sorted(touched.numbers & caches.keys())
        for number in living:
            touched.add(number, caches[number])
        # Numbered in the order in which they were touched, which is that of every rank.
        numbers = {key: self._number(*slab) for key, slab in touched.slabs.items()}
        told: list[Json] = [self._cache(number, caches[number], numbers) for number in living]
        changed = self._changed(slab for slab, _ in touched.slabs.values())
        pools: list[Json] = [
            [verifier.pool.held_bytes, verifier.pool.reserved_bytes] for verifier in verifiers
        ]
        return {"pools": pools, "caches": told, "slabs": changed}

    def _cache(self, number: int, held: HeldCache, numbers: dict[int, int]) -> Json:
        cache = held.cache
        own = [numbers[id(slab)] for slab in cache.slabs]
        state: dict[str, Json] = {
            "id": number,
            "length": cache.length,
            "memory_bytes": cache.memory_bytes,
            "freed_bytes": cache.freed_bytes,
            "widest": cache.widest,
            "forkable_from": cache.forkable_from,
            "reach": cache.reach,
            "growth_bytes": cache.growth_bytes(max(0, cache.reach - cache.length) + 1),
        }
        if own != held.told_slabs:
            held.told_slabs = own
            state["slabs"] = list(own)
        return state

    def _changed(self, slabs: Iterable[Slab[Any]]) -> list[Json]:
        changed: list[Json] = []
        for slab in slabs:
            known = self._known[id(slab)]
            now = (slab.holders, slab.copies_reserved)
            if now != known.told:
                known.told = now
                changed.append([known.number, known.verifier, slab.nbytes, *now])
            if not slab.holders:
                del self._known[id(slab)]
        return changed

    def _number(self, slab: Slab[Any], verifier: int) -> int:
        known = self._known.get(id(slab))
        if known is None:
            known = self._known[id(slab)] = _Known(slab, verifier, self._next)
            self._next += 1
        return known.number
