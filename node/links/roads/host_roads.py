"""The roads that a host may have: those its configuration allows, and whether it forms a ring."""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
from typing import TYPE_CHECKING

from kakeya_fleet.node.links.protocol.contract import LinkMode
from kakeya_fleet.node.links.roads.contract import Road, RoadBuilder, RoadFailed

if TYPE_CHECKING:
    from kakeya_fleet.node.links.roads.ring_road import RingRoads

HOST = "127.0.0.1"
# A trial is not repeated: a host that is busy while its agents start, and needs 12 s then, is no
# host without a ring.
READY_SECONDS = 60.0
ECHO_SECONDS = 20.0
# More than one piece, and no whole number of them.
ECHO_BYTES = (5 << 20) + 1


def wants_ring(links: str) -> bool:
    """Whether the configuration `links` allows a ring: the host is probed only then."""
    return links in (LinkMode.AUTO, LinkMode.RING)


def road_builders(
    links: str, host: str, probe: RingProbe, *, within_host: bool = False
) -> tuple[RoadBuilder, ...]:
    """The builders for `links`, a `LinkMode`; those to be tried first in front.

    `host` is the card's: the IPv4 address at which other nodes reach this one. With
    `within_host` no tensor leaves this host in the clear.
    """
    builders: list[RoadBuilder] = []
    # A road that is not allowed is not loaded.
    if links in (LinkMode.AUTO, LinkMode.LOCAL):
        from kakeya_fleet.node.links.roads.shared_memory_road import (  # noqa: PLC0415
            SharedMemoryRoads,
        )

        builders.append(SharedMemoryRoads())
    if wants_ring(links):
        from kakeya_fleet.node.links.roads.ring_road import RingRoads  # noqa: PLC0415

        builders.append(RingRoads(host, probe, within_host))
    return tuple(builders)


class RingProbe:
    """Can this host form a ring? Tried once in an agent's life, with two children on loopback.

    `reason` is a sentence until `run` has found that it can.
    """

    def __init__(self, *, ready_seconds: float = READY_SECONDS) -> None:
        self._ready_seconds = ready_seconds
        self._reason = "whether this host can form a ring has not been tried yet"
        self._running = asyncio.Lock()
        self._is_done = False

    @property
    def reason(self) -> str:
        """Empty when this host can form a ring, else why not."""
        return self._reason

    async def run(self) -> str:
        """Tries it, the first time; the reason. Takes `ready_seconds` and an echo at most."""
        async with self._running:
            if not self._is_done:
                self._reason = await self._tried()
                self._is_done = True
        return self._reason

    async def _tried(self) -> str:
        if importlib.util.find_spec("mlx") is None:
            return "MLX is not installed on this host"
        from kakeya_fleet.node.links.roads.ring_road import RingRoads  # noqa: PLC0415

        try:
            await _echo(RingRoads(HOST, ready_seconds=self._ready_seconds))
        except RoadFailed as failed:
            return f"a ring on this host alone failed: {failed}"
        return ""


async def _echo(builder: RingRoads) -> None:
    """Builds both ends and sends bytes there and back. Raises `RoadFailed`."""
    nonce = secrets.token_bytes(32)
    caller = await builder.propose(nonce)
    try:
        other = await builder.answer(nonce, caller.terms)
    except BaseException:
        await caller.abandon()
        raise
    building = [
        asyncio.ensure_future(other.build(caller.terms)),
        asyncio.ensure_future(caller.build(other.terms)),
    ]
    try:
        roads = await asyncio.gather(*building)
        await _there_and_back(roads[0], roads[1])
    finally:
        for each in building:
            each.cancel()
        for built in await asyncio.gather(*building, return_exceptions=True):
            if not isinstance(built, BaseException):
                await built.close()


async def _there_and_back(near: Road, far: Road) -> None:
    data = memoryview(secrets.token_bytes(ECHO_BYTES))
    for sender, receiver in ((near, far), (far, near)):
        _, data_there = await asyncio.gather(
            sender.send(data, seconds=ECHO_SECONDS),
            receiver.receive(ECHO_BYTES, seconds=ECHO_SECONDS),
        )
        if data_there != data:
            raise RoadFailed("the ring gave other bytes than it was given")
