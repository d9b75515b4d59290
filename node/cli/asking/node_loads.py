"""Asks the nearest nodes of a fleet for their load, many at once and not for long."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from contextlib import AsyncExitStack

from kakeya import AsyncClient, KakeyaError, Liveness, Node, NodeStatus, Timeouts
from kakeya_fleet.node.cli.asking.access import Callers
from kakeya_fleet.node.cli.asking.told_values import sanitized

# A node that does not answer in this time is left out.
ANSWER_SECONDS = 2.0
# A fleet that somebody made look large costs no more descriptors than a shell has, 1,024 or 256
# on macOS, of which a node takes up to two, and no more than
# ANSWER_SECONDS * MOST_ASKED / AT_ONCE = 4 s.
MOST_ASKED = 96
AT_ONCE = 48


def nearest_living(nodes: Iterable[NodeStatus], most: int = MOST_ASKED) -> list[NodeStatus]:
    """Those that can be asked for themselves: alive, by round trip, unmeasured ones last."""
    living = [each for each in nodes if each.liveness is Liveness.ALIVE and each.address]
    return sorted(living, key=_distance)[:most]


def _distance(node: NodeStatus) -> float:
    if node.is_self:
        return 0.0
    return math.inf if node.round_trip_seconds is None else node.round_trip_seconds


class Loads:
    """Each node is connected to once, for as long as the stack lives."""

    def __init__(self, stack: AsyncExitStack, via: str) -> None:
        """`via` is the node, host:port, that told of the others."""
        self._stack = stack
        self._callers = Callers(via)
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._clients: dict[str, AsyncClient] = {}

    async def ask(self, nodes: Iterable[NodeStatus]) -> dict[str, Node]:
        """What `nearest_living` of `nodes` say of themselves, by node id; silent ones left out."""
        asked = nearest_living(nodes)
        answers = await asyncio.gather(*(self._ask(each.address) for each in asked))
        # Where an address leads to another node from here, that one does not answer for it.
        return {
            status.node_id: node
            for status, node in zip(asked, answers, strict=True)
            if node is not None and node.card.node_id == status.node_id
        }

    async def _ask(self, address: str) -> Node | None:
        async with self._at_once:
            if address not in self._clients:
                client = self._callers.client(address, Timeouts(unary=ANSWER_SECONDS))
                self._clients[address] = await self._stack.enter_async_context(client)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return sanitized(await self._clients[address].fleet.node())
            except (KakeyaError, TimeoutError):
                return None
