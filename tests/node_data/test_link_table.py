"""Places for links: kept by those who use them."""

from __future__ import annotations

import pytest

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.link_table import IDLE_SECONDS, UNCLAIMED_SECONDS, LinkTable
from kakeya_fleet.node.rpc.refusals import TooManyLinks


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_links_that_nobody_claims_give_their_places_back_soon() -> None:
    clock = Clock()
    table = LinkTable(clock, most_links=3)
    used = table.open("verifier", "drafter", 8)
    used.is_streaming = True
    abandoned = [table.open("stranger", "drafter", 8) for _ in range(2)]
    with pytest.raises(TooManyLinks):
        table.open("verifier", "drafter", 8)
    clock.now = UNCLAIMED_SECONDS - 0.1
    table.sweep()
    assert len(table) == 3
    clock.now = UNCLAIMED_SECONDS
    table.sweep()
    assert list(table) == [used]
    assert all(link.ended.is_set() for link in abandoned)
    table.open("verifier", "drafter", 8)
    kept = table.open_for(wire.OpenLinkRequest(), None, 8)
    kept.is_streaming = True
    clock.now = IDLE_SECONDS
    table.sweep()
    assert used.ended.is_set()
    # One that a handler serves is as idle as its session.
    assert list(table) == [kept]
