"""The page of targets for Prometheus, of a large fleet and for many who ask."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

from kakeya_fleet.fleet.cards.card import SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.views.node_view import NodeView
from kakeya_fleet.fleet.views.prometheus_targets import targets
from kakeya_fleet.node.http.target_page import NODES_A_PART, TargetPage
from tests.node.conftest import MakeCard

COUNT = 10_000


class Fleet:
    """Views of nodes, and how often they were asked for."""

    def __init__(self, make_card: Callable[..., SignedCard], count: int) -> None:
        self.asked_count = 0
        card = make_card(http_address="127.0.0.1:7180").card
        self.nodes = [
            NodeView(
                replace(card, node_id=f"{index:064x}", name=f"node-{-index % 17}"), Liveness.ALIVE
            )
            for index in range(count)
        ]

    def views(self) -> list[NodeView]:
        self.asked_count += 1
        return self.nodes


async def test_others_work_while_the_page_of_a_large_fleet_is_built(make_card: MakeCard) -> None:
    fleet = Fleet(make_card, COUNT)
    building = asyncio.create_task(TargetPage(fleet.views).body())
    turns = 0
    while not building.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= COUNT // NODES_A_PART
    assert json.loads(await building) == targets(fleet.nodes)


async def test_no_nodes_are_an_empty_list_and_few_are_whole(make_card: MakeCard) -> None:
    for count in (0, 1, NODES_A_PART, NODES_A_PART + 1):
        fleet = Fleet(make_card, count)
        assert json.loads(await TargetPage(fleet.views).body()) == targets(fleet.nodes)


async def test_who_asks_meanwhile_shares_it_and_who_leaves_takes_it_from_nobody(
    make_card: MakeCard,
) -> None:
    fleet = Fleet(make_card, 3 * NODES_A_PART)
    page = TargetPage(fleet.views)
    asking = [asyncio.create_task(page.body()) for _ in range(100)]
    await asyncio.sleep(0)
    asking[0].cancel()
    bodies = await asyncio.gather(*asking[1:])
    assert fleet.asked_count == 1
    assert len({id(body) for body in bodies}) == 1
    fleet.nodes.clear()
    assert json.loads(await page.body()) == []
