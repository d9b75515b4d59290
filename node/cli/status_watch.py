"""`fleet status --watch`: the fleet as it changes, on a screen, in lines or as JSON."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from kakeya import AsyncClient, FleetSnapshot, KakeyaError, Liveness, NodeChanged, Timeouts
from node.cli.fleet_table import COLUMNS, LOAD_COLUMNS, heading, load_cells, rows
from node.cli.output import fields_of, say, write_json
from node.cli.tables import ScreenTable, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kakeya import FleetEvent, Node, NodeStatus
    from node.cli.live_screen import LiveScreen

REFRESH_SECONDS = 1.0
# A node that does not answer in this time shows what it said last.
ANSWER_SECONDS = 2.0


def event_name(event: FleetEvent) -> str:
    """What JSON calls an event of the watch."""
    if isinstance(event, FleetSnapshot):
        return "snapshot"
    return "changed" if isinstance(event, NodeChanged) else "removed"


def print_event(event: FleetEvent, *, as_json: bool) -> None:
    """One event as JSON, or as the lines of the nodes that it is about."""
    if as_json:
        write_json({"event": event_name(event), **fields_of(event)})
    elif isinstance(event, FleetSnapshot):
        say(f"{heading(event)}\n{plain_table(COLUMNS, rows(event.nodes))}")
    elif isinstance(event, NodeChanged):
        say(plain_table(COLUMNS, rows([event.node])).partition("\n")[2])
    else:
        say(f"{event.node_id[:12]}  forgotten")


async def watch_in_lines(client: AsyncClient, *, as_json: bool) -> None:
    """A line, or a JSON object, for each change, until the watch ends."""
    async with client.fleet.watch() as events:
        async for event in events:
            print_event(event, as_json=as_json)


async def watch_on_screen(client: AsyncClient, picture: Picture, screen: LiveScreen) -> None:
    """Draws every change as it comes, until `q`.

    Ages are asked for anew, because a watch tells changes alone; so are loads, of each
    live node.
    """

    async def follow() -> None:
        async with client.fleet.watch() as events:
            async for event in events:
                picture.take(event)
                screen.changed()

    async def refresh() -> None:
        async with AsyncExitStack() as stack:
            loads = Loads(stack)
            while True:
                picture.load(await loads.ask(picture.addresses()))
                screen.changed()
                await asyncio.sleep(REFRESH_SECONDS)
                picture.take(await client.fleet.snapshot())

    tasks = [asyncio.ensure_future(work()) for work in (follow, refresh, screen.run)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        # The screen gives the terminal back before anything else is written there.
        await asyncio.gather(*tasks, return_exceptions=True)


class Loads:
    """Asks nodes for their load; each is connected to once."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._clients: dict[str, AsyncClient] = {}

    async def ask(self, addresses: list[str]) -> dict[str, Node]:
        """What the nodes at `addresses` say of themselves, by address; silent ones left out."""
        answers = await asyncio.gather(*(self._ask(each) for each in addresses))
        return {
            address: node
            for address, node in zip(addresses, answers, strict=True)
            if node is not None
        }

    async def _ask(self, address: str) -> Node | None:
        if address not in self._clients:
            client = AsyncClient(address, timeouts=Timeouts(unary=ANSWER_SECONDS))
            self._clients[address] = await self._stack.enter_async_context(client)
        try:
            return await self._clients[address].fleet.node()
        except KakeyaError:
            return None


class Picture:
    """The fleet as a watch told it last."""

    def __init__(self) -> None:
        self._fleet_name = ""
        self._nodes: dict[str, tuple[NodeStatus, float]] = {}
        self._loads: dict[str, Node] = {}

    def take(self, event: FleetEvent) -> None:
        """Adds what a watch told."""
        now = time.monotonic()
        if isinstance(event, FleetSnapshot):
            self._fleet_name = event.fleet_name
            self._nodes = {node.node_id: (node, now) for node in event.nodes}
        elif isinstance(event, NodeChanged):
            self._nodes[event.node.node_id] = (event.node, now)
        else:
            self._nodes.pop(event.node_id, None)

    def load(self, nodes: dict[str, Node]) -> None:
        """Adds what nodes said of themselves, by address."""
        self._loads |= {node.card.node_id: node for node in nodes.values()}

    def addresses(self) -> list[str]:
        """Where live nodes answer."""
        return [
            node.address
            for node, _ in self._nodes.values()
            if node.liveness is Liveness.ALIVE and node.address
        ]

    def snapshot(self) -> FleetSnapshot:
        """The fleet, by name."""
        known = sorted(
            (node for node, _ in self._nodes.values()), key=lambda node: (node.name, node.node_id)
        )
        return FleetSnapshot(self._fleet_name, tuple(known))

    def draw(self) -> RenderableType:
        """The table now."""
        now = time.monotonic()
        fleet = self.snapshot()
        lines = []
        for node in fleet.nodes:
            told = self._nodes[node.node_id][1]
            alive = node.liveness is Liveness.ALIVE
            own = self._loads.get(node.node_id) if alive else None
            (row,) = rows([node], waited_seconds=now - told)
            lines.append([*row[:3], *load_cells(own), *row[3:]])
        columns = [*COLUMNS[:3], *LOAD_COLUMNS, *COLUMNS[3:]]
        return ScreenTable(columns, lines, f"{heading(fleet)}   (q ends)")
