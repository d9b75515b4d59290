"""`fleet status`: the nodes of the fleet, once or live."""

from __future__ import annotations

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
  fleet status --watch --node 127.0.0.1:7600
  fleet status --json | jq '.nodes[].card.name'
"""


@click.command("status", epilog=EXAMPLE)
@click.option("--watch", is_flag=True, help="Stay, and show every change as it happens.")
@node_option
@json_option
def command(node: str | None, *, watch: bool, as_json: bool) -> int:
    """Show the nodes of the fleet: roles, models, memory, liveness.

    "seen" is how long ago the asked node (marked *) had a sign of life.
    """
    from node.cli.connection import ask

    async def show(client: AsyncClient) -> int:
        if watch:
            return await _watch(client, as_json=as_json)
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
    from rich.live import Live

    from kakeya import FleetSnapshot, NodeChanged

    nodes: dict[str, tuple[NodeStatus, float]] = {}
    fleet_name = ""

    def picture() -> RenderableType:
        return _live_table(fleet_name, nodes)

    with Live(console=console, get_renderable=picture, refresh_per_second=4):
        async with client.fleet.watch() as events:
            async for event in events:
                now = time.monotonic()
                if isinstance(event, FleetSnapshot):
                    fleet_name = event.fleet_name
                    nodes = {each.node_id: (each, now) for each in event.nodes}
                elif isinstance(event, NodeChanged):
                    nodes[event.node.node_id] = (event.node, now)
                else:
                    nodes.pop(event.node_id, None)
    return ExitCode.OK


def _live_table(fleet_name: str, nodes: dict[str, tuple[NodeStatus, float]]) -> RenderableType:
    from kakeya import FleetSnapshot
    from node.cli.fleet_table import COLUMNS, heading, rows
    from node.cli.tables import rich_table

    now = time.monotonic()
    known = sorted(nodes.values(), key=lambda pair: (pair[0].name, pair[0].node_id))
    lines = [row for each, told in known for row in rows([each], waited_seconds=now - told)]
    title = heading(FleetSnapshot(fleet_name, tuple(each for each, _ in known)))
    return rich_table(COLUMNS, lines, title=f"{title}   (Ctrl-C ends)")
