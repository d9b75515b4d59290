"""Which proposers draft on another machine, while whose drafts are on their way more is decoded."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kakeya_fleet.fleet.placement.plan import Placement
from kakeya_fleet.node.roles.verifier.draft_connections import DraftConnections
from tests.support import neighbourhood as nodes


def placement(node_id: str) -> Placement:
    return Placement(node_id, node_id, "", "model")


@pytest.mark.parametrize(
    ("host", "address", "apart"),
    [
        ("host", "10.0.0.9:1", False),
        ("other", "10.0.0.1:1", True),
        # Who tells no host is known by its address.
        ("", "10.0.0.1:2", False),
        ("", "10.0.0.9:1", True),
    ],
)
def test_it_is_told_by_both_cards(host: str, address: str, apart: bool) -> None:
    here = replace(nodes.card("here", "10.0.0.1:1", ()), host_id="host")
    there = replace(nodes.card("there", address, ()), host_id=host)
    views = [SimpleNamespace(card=each) for each in (here, there)]
    fleet = SimpleNamespace(self_id=here.node_id, nodes=lambda: views)
    unused: Any = None
    context: Any = SimpleNamespace(fleet=fleet)
    connections = DraftConnections(unused, context, unused, unused, judging=True)
    assert connections.is_apart(placement(there.node_id)) is apart
    assert not connections.is_apart(placement(here.node_id))
    # One that left since the plan was made.
    assert not connections.is_apart(placement("gone"))
