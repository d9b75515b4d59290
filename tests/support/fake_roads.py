"""Roads within one process that fail when they are told to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.roads.contract import RoadFailed, Terms

Result = TypeVar("Result")

Fate = str
"""What happens to a tensor's bytes.

"whole"; "fails", sending raises at once; "dies", half arrives and both ends see the
road's end; "lost", sending says nothing; "corrupt"; "frozen", neither end hears anything.
"""


def always(fate: Fate) -> Iterator[Fate]:
    return itertools.repeat(fate)


@dataclass
class Shared:
    """What both ends' builders share: the roads by name, and what is still open."""

    fates: Iterator[Fate] = field(default_factory=lambda: always("whole"))
    seconds: Callable[[int], float] = lambda _count: 0.0
    roads: dict[str, list[FakeRoad]] = field(default_factory=dict)
    open_roads: int = 0
    open_plans: int = 0
    names: Iterator[int] = field(default_factory=itertools.count)
    carried: int = 0


class FakeRoad:
    def __init__(self, kind: RoadKind, shared: Shared) -> None:
        self.kind = kind
        self.shared = shared
        self.coming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.other: FakeRoad | None = None
        self.ended = asyncio.Event()
        self.closed = False
        shared.open_roads += 1

    async def send(self, data: memoryview, *, seconds: float) -> None:
        fate = next(self.shared.fates)
        await asyncio.sleep(self.shared.seconds(len(data)))
        if self.ended.is_set() or self.other is None or fate == "fails":
            self.end()
            raise RoadFailed("the fake road broke while it was sending")
        if fate == "whole":
            self.shared.carried += 1
            self.other.coming.put_nowait(bytes(data))
        elif fate == "corrupt":
            spoilt = bytearray(data)
            spoilt[len(spoilt) // 2] ^= 1
            self.other.coming.put_nowait(bytes(spoilt))
        elif fate == "dies":
            self.end()
            self.other.end()
        elif fate == "frozen":
            await self._within(asyncio.Event().wait(), seconds)

    async def receive(self, byte_count: int, *, seconds: float) -> memoryview:
        data = await self._within(self.coming.get(), seconds)
        if data is None:
            raise RoadFailed("the fake road died")
        if len(data) != byte_count:
            raise RoadFailed(f"{len(data)} bytes came, not {byte_count}")
        return memoryview(data)

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.shared.open_roads -= 1
            self.end()
            if self.other is not None:
                self.other.end()

    def end(self) -> None:
        self.ended.set()
        self.coming.put_nowait(None)

    async def _within(self, waiting: Awaitable[Result], seconds: float) -> Result:
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError as error:
            raise RoadFailed(f"nothing came within {seconds:g} s") from error


@dataclass
class FakePlan:
    builder: FakeRoads
    name: str
    terms: Terms
    fault: str = ""
    settled: bool = False

    async def build(self, other: Terms) -> FakeRoad:
        self._settle()
        if self.fault == "build fails":
            raise RoadFailed("the fake road cannot be built")
        if self.fault == "never ready":
            await asyncio.Event().wait()
        shared = self.builder.shared
        road = FakeRoad(self.builder.kind, shared)
        ends = shared.roads.setdefault(self.name, [])
        ends.append(road)
        if len(ends) == 2:
            ends[0].other, ends[1].other = ends[1], ends[0]
        if self.fault == "dies when ready":
            road.end()
        return road

    async def abandon(self) -> None:
        self._settle()

    def _settle(self) -> None:
        assert not self.settled
        self.settled = True
        self.builder.shared.open_plans -= 1


@dataclass
class FakeRoads:
    """A builder; `faults` are those of its attempts, one after the other, then none."""

    shared: Shared
    kind: RoadKind = RoadKind.LOCAL
    faults: list[str] = field(default_factory=list)
    available: str = ""
    attempts: int = 0
    nonces: list[bytes] = field(default_factory=list)

    async def propose(self, nonce: bytes) -> FakePlan:
        return self._plan(nonce, f"road-{next(self.shared.names)}")

    async def answer(self, nonce: bytes, proposed: Terms) -> FakePlan:
        return self._plan(nonce, proposed["name"])

    def _plan(self, nonce: bytes, name: str) -> FakePlan:
        self.attempts += 1
        self.nonces.append(nonce)
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "refused":
            raise RoadFailed("the fake road is refused")
        self.shared.open_plans += 1
        return FakePlan(self, name, {"name": name}, fault)
