"""`fleet status`: the nodes of the fleet, once or live."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import click

from node.cli.failure import ExitCode
from node.cli.options import json_option, node_option

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from kakeya import AsyncClient, FleetEvent, FleetSnapshot, NodeStatus

EXAMPLE = """\b
Example:
  fleet status
  fleet status --links
  fleet status --watch --node 127.0.0.1:7600
  fleet status --json | jq '.nodes[].card.name'
"""


REFRESH_SECONDS = 1.0


@click.command("status", epilog=EXAMPLE)
@click.option("--watch", is_flag=True, help="Stay, and show every change as it happens.")
@click.option("--links", is_flag=True, help="Show the asked node's tensor links instead.")
@node_option
@json_option
def command(node: str | None, *, watch: bool, links: bool, as_json: bool) -> int:
    """Show the nodes of the fleet: roles, models, memory, liveness.

    Ages and round trips are those of the asked node, which is marked with *. With
    --links: what carries its tensors to and from other nodes, how fast, and why.
    """
    if watch and links:
        raise click.UsageError("--links is not for --watch")
    from node.cli.connection import ask

    async def show(client: AsyncClient) -> int:
        if watch:
            return await _watch(client, as_json=as_json)
        if links:
            return await _show_links(client, as_json=as_json)
        _print(await client.fleet.snapshot(), as_json=as_json)
        return ExitCode.OK

    return ask(node, show)


def _print(snapshot: FleetSnapshot, *, as_json: bool) -> None:
    from node.cli.fleet_table import COLUMNS, heading, rows
    from node.cli.output import fields_of, say, terminal, write_json
    from node.cli.tables import plain_table, rich_table

    if as_json:
        write_json(fields_of(snapshot))
        return
    console = terminal(sys.stdout)
    if console is None:
        say(f"{heading(snapshot)}\n{plain_table(COLUMNS, rows(snapshot.nodes))}")
    else:
        console.print(rich_table(COLUMNS, rows(snapshot.nodes), title=heading(snapshot)))


async def _show_links(client: AsyncClient, *, as_json: bool) -> int:
    from node.cli.link_table import COLUMNS, heading, rows
    from node.cli.output import fields_of, say, terminal, write_json
    from node.cli.tables import plain_table, rich_table

    asked = await client.fleet.node()
    if as_json:
        links = [fields_of(link) for link in asked.tensor_links]
        write_json({"node": asked.card.name, "tensor_links": links})
        return ExitCode.OK
    names = {node.node_id: node.name for node in await client.fleet.nodes()}
    lines = rows(asked.tensor_links, names)
    console = terminal(sys.stdout)
    if not lines:
        say(heading(asked))
    elif console is None:
        say(f"{heading(asked)}\n{plain_table(COLUMNS, lines)}")
    else:
        console.print(rich_table(COLUMNS, lines, title=heading(asked)))
    return ExitCode.OK


async def _watch(client: AsyncClient, *, as_json: bool) -> int:
    from node.cli.output import terminal

    console = terminal(sys.stdout)
    if console is not None and not as_json:
        return await _watch_live(client, console)
    async with client.fleet.watch() as events:
        async for event in events:
            _print_event(event, as_json=as_json)
    return ExitCode.OK


def _print_event(event: FleetEvent, *, as_json: bool) -> None:
    from kakeya import FleetSnapshot, NodeChanged
    from node.cli.fleet_table import COLUMNS, rows
    from node.cli.output import fields_of, say, write_json
    from node.cli.tables import plain_table

    if as_json:
        kind = {FleetSnapshot: "snapshot", NodeChanged: "changed"}.get(type(event), "removed")
        write_json({"event": kind, **fields_of(event)})
    elif isinstance(event, FleetSnapshot):
        _print(event, as_json=False)
    elif isinstance(event, NodeChanged):
        say(plain_table(COLUMNS, rows([event.node])).partition("\n")[2])
    else:
        say(f"{event.node_id[:12]}  forgotten")


async def _watch_live(client: AsyncClient, console: Console) -> int:
    """A table that follows the watch. Ages are asked for anew: a watch tells changes alone."""
    from rich.live import Live

    picture = Picture()

    async def follow() -> None:
        async with client.fleet.watch() as events:
            async for event in events:
                picture.take(event)

    async def refresh() -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            picture.take(await client.fleet.snapshot())

    with Live(console=console, get_renderable=picture.draw, refresh_per_second=4):
        refreshing = asyncio.create_task(refresh())
        try:
            await follow()
        finally:
            refreshing.cancel()
    return ExitCode.OK


class Picture:
    """The fleet as a watch told it last."""

    def __init__(self) -> None:
        self._fleet_name = ""
        self._nodes: dict[str, tuple[NodeStatus, float]] = {}

    def take(self, event: FleetEvent) -> None:
        """Adds what a watch told."""
        from kakeya import FleetSnapshot, NodeChanged

        now = time.monotonic()
        if isinstance(event, FleetSnapshot):
            self._fleet_name = event.fleet_name
            self._nodes = {node.node_id: (node, now) for node in event.nodes}
        elif isinstance(event, NodeChanged):
            self._nodes[event.node.node_id] = (event.node, now)
        else:
            self._nodes.pop(event.node_id, None)

    def draw(self) -> RenderableType:
        """The table now."""
        from kakeya import FleetSnapshot
        from node.cli.fleet_table import COLUMNS, heading, rows
        from node.cli.tables import rich_table

        now = time.monotonic()
        known = sorted(self._nodes.values(), key=lambda pair: (pair[0].name, pair[0].node_id))
        lines = [row for node, told in known for row in rows([node], waited_seconds=now - told)]
        title = heading(FleetSnapshot(self._fleet_name, tuple(node for node, _ in known)))
        return rich_table(COLUMNS, lines, title=f"{title}   (Ctrl-C ends)")
