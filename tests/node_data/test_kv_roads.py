"""Keys and values read back over every road, and over roads that fail: the same tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.node.links.contract import RoadKind
from kakeya_fleet.node.links.roads.contract import Road, RoadFailed, RoadPlan, Terms
from kakeya_fleet.node.links.roads.ring_probe import RingProbe
from kakeya_fleet.node.links.roads.ring_road import RingRoads
from kakeya_fleet.node.links.roads.shared_memory_road import SharedMemoryRoads
from tests.support import calls
from tests.support import neighbourhood as nodes

PROMPT = [(7 * index + index // 11) % 96 for index in range(700)]
MAX_TOKENS = 24
TRANSPORTS = {
    "grpc": placement_pb2.TRANSPORT_GRPC,
    "local": placement_pb2.TRANSPORT_LOCAL,
    "ring": placement_pb2.TRANSPORT_RING,
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class FailingRoads:
    """Shared memory whose road fails before, or in, the `fails_at`-th transfer that is counted."""

    fails_at: int = 0
    of: str = "send"
    transfers: int = 0
    built: int = 0
    _inner: SharedMemoryRoads = field(default_factory=SharedMemoryRoads)

    kind = RoadKind.LOCAL

    @property
    def available(self) -> str:
        return self._inner.available

    async def propose(self, nonce: bytes) -> RoadPlan:
        return FailingPlan(self, await self._inner.propose(nonce))

    async def answer(self, nonce: bytes, proposed: Terms) -> RoadPlan:
        return FailingPlan(self, await self._inner.answer(nonce, proposed))


@dataclass
class FailingPlan:
    roads: FailingRoads
    inner: RoadPlan

    @property
    def terms(self) -> Mapping[str, str]:
        return self.inner.terms

    async def build(self, other: Terms) -> Road:
        self.roads.built += 1
        return FailingRoad(self.roads, await self.inner.build(other))

    async def abandon(self) -> None:
        await self.inner.abandon()


@dataclass
class FailingRoad:
    roads: FailingRoads
    inner: Road

    kind = RoadKind.LOCAL

    async def _counted(self, way: str) -> None:
        if way == self.roads.of and self.roads.fails_at:
            self.roads.transfers += 1
            if self.roads.transfers == self.roads.fails_at:
                await self.inner.close()
                raise RoadFailed("struck")

    async def send(self, data: memoryview, *, seconds: float) -> None:
        await self._counted("send")
        await self.inner.send(data, seconds=seconds)

    async def receive(self, byte_count: int, *, seconds: float) -> memoryview:
        found = await self.inner.receive(byte_count, seconds=seconds)
        await self._counted("receive")
        return found

    async def close(self) -> None:
        await self.inner.close()


async def opened(caller: Any, strategy: int, attend: int = 0) -> Any:
    restorer = placement_pb2.Restorer(attend=attend) if attend else None
    return await caller.stub.CreateSession(
        runtime_pb2.CreateSessionRequest(
            model_id="random",
            kv_strategy=strategy,
            sink_tokens=4,
            window_tokens=32,
            speculation=runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF),
            restorer=restorer,
        ),
        timeout=30,
    )


async def restored(caller: Any) -> Any:
    """A session that attends here."""
    strategy = placement_pb2.KV_STRATEGY_RESTORED
    return await opened(caller, strategy, placement_pb2.RESTORER_ATTEND_VERIFIER)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def full(checkpoint: Path) -> AsyncIterator[list[int]]:
    """The stream of full attention."""
    async with nodes.Neighbourhood() as started:
        node = await started.start("alone", f"verifier={checkpoint}")
        caller = calls.Caller(node.channel)
        session = await opened(caller, placement_pb2.KV_STRATEGY_FULL)
        await caller.append(session.session_id, PROMPT)
        yield (await caller.generate(session.session_id, MAX_TOKENS)).token_ids


@dataclass
class Pair:
    """A verifier's node and an archive's, with their roads."""

    verifier: Any
    archive: Any
    caller: Any

    def carried_by(self, kind: str) -> bool:
        """Whether that carries every link, at both ends."""
        ends = [*self.verifier.roles.tensor_links(), *self.archive.roles.tensor_links()]
        return bool(ends) and all(end.transport == TRANSPORTS[kind] for end in ends)


async def paired(
    started: Any, nodes: ModuleType, calls: ModuleType, checkpoint: Path, links: str, roads: Any
) -> Pair:
    settings = replace(nodes.SETTINGS, links=links)
    verifier = await started.start(
        "verifier", f"verifier={checkpoint}", settings=settings, roads=roads[0]
    )
    archive = await started.start("archive", "archive=64MiB", settings=settings, roads=roads[1])
    return Pair(verifier, archive, calls.Caller(verifier.channel))


async def roads_of(links: str) -> Any:
    if links == "local":
        return (SharedMemoryRoads(),), (SharedMemoryRoads(),)
    if links == "ring":
        probe = RingProbe()
        assert not await probe.run()
        return (RingRoads("127.0.0.1", probe),), (RingRoads("127.0.0.1", probe),)
    return (), ()


@pytest.mark.parametrize("links", ["grpc", "local", "ring"])
async def test_every_road_gives_the_same_tokens(
    checkpoint: Path, full: list[int], links: str
) -> None:
    async with nodes.Neighbourhood() as started:
        pair = await paired(started, nodes, calls, checkpoint, links, await roads_of(links))
        session = await restored(pair.caller)
        await calls.until(lambda: pair.carried_by(links), seconds=30.0)
        await pair.caller.append(session.session_id, PROMPT)
        stream = await pair.caller.generate(session.session_id, MAX_TOKENS)
        assert stream.token_ids == full
        assert pair.carried_by(links)
        sent = "kakeya_link_transport_bytes_total"
        assert pair.archive.metric(sent, transport=links, way="sent") > 1 << 20
        assert not pair.verifier.metric("kakeya_restorer_rebuilds_total", outcome="rebuilt")


@pytest.mark.parametrize(
    ("end", "of", "fails_at"),
    [
        ("verifier", "send", 1),
        ("verifier", "receive", 9),
        ("archive", "send", 2),
        ("archive", "receive", 3),
    ],
)
async def test_a_road_that_fails_in_mid_transfer_costs_neither_token_nor_archive(
    checkpoint: Path, full: list[int], end: str, of: str, fails_at: int
) -> None:
    roads = FailingRoads(of=of), FailingRoads(of=of)
    async with nodes.Neighbourhood() as started:
        pair = await paired(started, nodes, calls, checkpoint, "local", ((roads[0],), (roads[1],)))
        session = await restored(pair.caller)
        await calls.until(lambda: pair.carried_by("local"), seconds=30.0)
        await pair.caller.append(session.session_id, PROMPT[:-1])
        struck = roads[0] if end == "verifier" else roads[1]
        struck.fails_at = fails_at
        await pair.caller.append(session.session_id, PROMPT[-1:])
        stream = await pair.caller.generate(session.session_id, MAX_TOKENS)
        assert stream.token_ids == full
        assert struck.transfers >= fails_at
        assert not pair.verifier.metric("kakeya_restorer_rebuilds_total", outcome="rebuilt")
        # It comes back, as a new one.
        await calls.until(lambda: pair.carried_by("local"), seconds=30.0)
        assert struck.built >= 2
        await pair.caller.append(session.session_id, [1])
