"""Which nodes of a fleet are asked for themselves."""

from __future__ import annotations

from dataclasses import replace

from kakeya import Liveness, NodeStatus
from kakeya_fleet.node.cli.asking.node_loads import MOST_ASKED, nearest_living
from tests.support import fleet_scene


def node(name: str, trip: float | None, *, is_self: bool = False) -> NodeStatus:
    return replace(fleet_scene.status(name), round_trip_seconds=trip, is_self=is_self)


def test_the_nearest_living_ones_are_asked_and_no_more_than_a_shell_has_descriptors_for() -> None:
    near, far, own = node("near", 0.001), node("far", 0.1), node("own", None, is_self=True)
    unmeasured = [node(f"unmeasured-{index}", None) for index in range(MOST_ASKED)]
    dead = replace(node("dead", 0.0), liveness=Liveness.DEAD)
    nameless = replace(node("nameless", 0.0), card=None)
    asked = nearest_living([*unmeasured, far, dead, nameless, near, own])
    assert asked == [own, near, far, *unmeasured[: MOST_ASKED - 3]]
