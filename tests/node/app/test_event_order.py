from __future__ import annotations

from collections.abc import Mapping

from kakeya_fleet.node.app.event_order import EventOrder


def test_peers_that_are_heard_early_are_told_after_the_first_own_event() -> None:
    said: list[Mapping[str, object]] = []
    order = EventOrder(said.append)
    order.of_fleet({"event": "peer_joined"})
    order.of_fleet({"event": "peer_left"})
    assert said == []
    order.of_node({"event": "ready"})
    order.of_fleet({"event": "peer_dead"})
    order.of_node({"event": "left"})
    names = [event["event"] for event in said]
    assert names == ["ready", "peer_joined", "peer_left", "peer_dead", "left"]
