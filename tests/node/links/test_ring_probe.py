"""Whether a host can form a ring: tried once, bounded in time, with a sentence when it cannot."""

import asyncio
import importlib.util
import sys

import pytest

from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.roads.contract import RoadFailed
from kakeya_fleet.node.links.roads.host_roads import RingProbe, road_builders, wants_ring
from kakeya_fleet.node.links.roads.ring_road import RingRoads
from tests.support import road_pairs

ring = pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="MLX is not installed")


@ring
async def test_it_is_tried_once_for_all_who_ask() -> None:
    most = 0

    async def count() -> None:
        nonlocal most
        while True:
            most = max(most, len(road_pairs.ring_children()))
            await asyncio.sleep(0.005)

    async with road_pairs.leaves_nothing():
        probe = RingProbe()
        assert "not been tried" in probe.reason
        counting = asyncio.ensure_future(count())
        assert [*await asyncio.gather(probe.run(), probe.run())] == ["", ""]
        assert most == 2
        most = 0
        assert (await probe.run(), probe.reason) == ("", "")
        assert most == 0
        counting.cancel()


@ring
async def test_a_host_that_is_too_slow_says_so() -> None:
    async with road_pairs.leaves_nothing():
        probe = RingProbe(ready_seconds=0.01)
        reason = await probe.run()
        assert "not READY within 0.01 s" in reason
        assert probe.reason == reason
        builder = RingRoads("127.0.0.1", probe)
        assert builder.available == reason
        with pytest.raises(RoadFailed, match="not READY"):
            await builder.propose(bytes(32))


async def test_a_host_without_mlx_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx", None)
    async with road_pairs.leaves_nothing():
        assert await RingProbe().run() == "MLX is not installed on this host"


@ring
async def test_a_trial_that_is_cancelled_leaves_nothing() -> None:
    async with road_pairs.leaves_nothing():
        trying = asyncio.ensure_future(RingProbe().run())
        await road_pairs.until(road_pairs.ring_children)
        trying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trying


@pytest.mark.parametrize(
    ("links", "kinds"),
    [
        ("auto", [RoadKind.LOCAL, RoadKind.RING]),
        ("local", [RoadKind.LOCAL]),
        ("ring", [RoadKind.RING]),
        ("grpc", []),
    ],
)
def test_the_configuration_says_which_roads_there_are(links: str, kinds: list[RoadKind]) -> None:
    builders = road_builders(links, "127.0.0.1", RingProbe())
    assert [builder.kind for builder in builders] == kinds
    assert wants_ring(links) == (RoadKind.RING in kinds)
