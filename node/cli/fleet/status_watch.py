"""`fleet status --watch`: the fleet as it changes, on a screen, in lines or as JSON."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from kakeya import AsyncClient, FleetSnapshot, Liveness, NodeChanged
from kakeya_fleet.node.cli.asking.node_loads import Loads
from kakeya_fleet.node.cli.asking.told_values import sanitized
from kakeya_fleet.node.cli.fleet.host_memory import HostMemory, hosts_of
from kakeya_fleet.node.cli.fleet.notes import note_lines
from kakeya_fleet.node.cli.fleet.table import (
    COLUMNS,
    LOAD_COLUMNS,
    heading,
    load_cells,
    machines_of,
    row,
    rows,
)
from kakeya_fleet.node.cli.terminal.output import fields_of, say, write_json
from kakeya_fleet.node.cli.terminal.tables import Row, ScreenTable, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kakeya import FleetEvent, Node, NodeStatus, SeedFault
    from kakeya_fleet.node.cli.terminal.live_screen import LiveScreen

REFRESH_SECONDS = 1.0


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
        say(f"{heading(event)}\n{plain_table(COLUMNS, _announced(event.nodes))}")
    elif isinstance(event, NodeChanged):
        say(plain_table(COLUMNS, _announced([event.node])).partition("\n")[2])
    else:
        say(f"{event.node_id[:12]}  forgotten")


def _announced(nodes: Sequence[NodeStatus]) -> list[Row]:
    """Rows with the memory that the cards tell: a change is told as it came."""
    free = {node.node_id: node.card.memory_free_bytes for node in nodes if node.card}
    return rows(nodes, hosts_of(nodes, free))


async def watch_in_lines(client: AsyncClient, *, as_json: bool) -> None:
    """A line, or a JSON object, for each change, until the watch ends."""
    async with client.fleet.watch() as events:
        async for event in events:
            print_event(sanitized(event), as_json=as_json)


async def watch_on_screen(client: AsyncClient, picture: Picture, screen: LiveScreen) -> None:
    """Draws every change as it comes, until `q`.

    Ages are asked for anew, because a watch tells changes alone; so are loads, of each
    live node.
    """

    async def follow() -> None:
        async with client.fleet.watch() as events:
            async for event in events:
                picture.take(sanitized(event))
                screen.changed()

    async def refresh() -> None:
        async with AsyncExitStack() as stack:
            loads = Loads(stack, client.address)
            while True:
                # A node that does not answer shows what it said last.
                picture.load(await loads.ask(picture.snapshot().nodes))
                screen.changed()
                await asyncio.sleep(REFRESH_SECONDS)
                picture.take(sanitized(await client.fleet.snapshot()))

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
        """Adds what nodes said of themselves, by node id."""
        self._loads |= nodes

    def hosts(self) -> list[HostMemory]:
        """The machines of live nodes, with the memory and the cores in use that were told last."""
        free = {node_id: node.load.memory_free_bytes for node_id, node in self._loads.items()}
        shares = {node_id: node.load.cpu_share for node_id, node in self._loads.items()}
        told = {node_id: share for node_id, share in shares.items() if share is not None}
        return hosts_of(self.snapshot().nodes, free, told)

    def notes(self) -> list[str]:
        """What people should know besides the table."""
        return note_lines(self.snapshot().nodes, self.seed_faults(), self.hosts())

    def seed_faults(self) -> tuple[SeedFault, ...]:
        """Seed peers that the asked node cannot join."""
        own = self._asked()
        return own.seed_faults if own else ()

    def ways(self) -> dict[str, str]:
        """The addresses at which the asked node reaches others, by node id."""
        own = self._asked()
        return {link.node_id: link.address for link in own.links} if own else {}

    def _asked(self) -> Node | None:
        asked = (node.node_id for node, _ in self._nodes.values() if node.is_self)
        return self._loads.get(next(asked, ""))

    def snapshot(self) -> FleetSnapshot:
        """The fleet, by name."""
        known = sorted(
            (node for node, _ in self._nodes.values()), key=lambda node: (node.name, node.node_id)
        )
        return FleetSnapshot(self._fleet_name, tuple(known))

    def draw(self) -> RenderableType:
        """The table now, and what people should know besides."""
        from rich.console import Group
        from rich.text import Text

        now = time.monotonic()
        fleet, hosts = self.snapshot(), self.hosts()
        # Once: a fleet of 10,000 would be looked through 10,000 times.
        machines, ways = machines_of(hosts), self.ways()
        lines = []
        for node in fleet.nodes:
            told = self._nodes[node.node_id][1]
            alive = node.liveness is Liveness.ALIVE
            own = self._loads.get(node.node_id) if alive else None
            way = ways.get(node.node_id, "")
            cells = row(node, machines.get(node.node_id), way, now - told)
            lines.append([*cells[:3], *load_cells(own), *cells[3:]])
        columns = [*COLUMNS[:3], *LOAD_COLUMNS, *COLUMNS[3:]]
        table = ScreenTable(columns, lines, f"{heading(fleet, hosts)}   (q ends)")
        return Group(table, *(Text(line, style="yellow") for line in self.notes()))
