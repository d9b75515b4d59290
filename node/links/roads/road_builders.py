"""The roads that a node's configuration allows, those to be tried first in front."""

from __future__ import annotations

from kakeya_fleet.node.links.roads.contract import RoadBuilder
from kakeya_fleet.node.links.roads.ring_probe import RingProbe
from kakeya_fleet.node.links.roads.ring_road import RingRoads
from kakeya_fleet.node.links.roads.shared_memory_road import SharedMemoryRoads


def wants_ring(links: str) -> bool:
    """Whether the configuration `links` allows a ring: the host is probed only then."""
    return links in ("auto", "ring")


def road_builders(links: str, host: str, probe: RingProbe) -> tuple[RoadBuilder, ...]:
    """The builders for `links`: auto, grpc, local or ring.

    `host` is the card's: the IPv4 address at which other nodes reach this one.
    """
    builders: list[RoadBuilder] = []
    if links in ("auto", "local"):
        builders.append(SharedMemoryRoads())
    if wants_ring(links):
        builders.append(RingRoads(host, probe))
    return tuple(builders)
