"""`fleet status`: the nodes of the fleet, once or live."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya import AsyncClient
    from kakeya_fleet.node.cli.fleet.status_watch import Picture

EXAMPLE = """\b
Example:
  fleet status
  fleet status --links
  fleet status --watch --node 127.0.0.1:7600
  fleet status --json | jq '.nodes[].card.name'
"""


@click.command("status", epilog=EXAMPLE)
@click.option("--watch", is_flag=True, help="Stay, and show every change as it happens.")
@click.option("--links", is_flag=True, help="Show the asked node's tensor links instead.")
@node_option
@json_option
def command(node: str | None, *, watch: bool, links: bool, as_json: bool) -> int:
    """Show the nodes of the fleet: roles, models, memory, CPU, liveness.

    Ages and round trips are those of the asked node, which is marked with *. Memory and CPU are
    what is in use now, of a machine with several nodes once. With
    --links: what carries its tensors to and from other nodes, how fast, and why. With
    --watch: a screen that `q` or Ctrl-C ends; without a terminal, a line for each change.
    """
    if watch and links:
        raise click.UsageError("--links is not for --watch")
    if watch:
        return _watch(node, as_json=as_json)
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.fleet.looking import look

    async def show(client: AsyncClient) -> int:
        if links:
            return await _show_links(client, as_json=as_json)
        _print(await look(client), as_json=as_json)
        return ExitCode.OK

    return ask(node, show)


def _watch(address: str | None, *, as_json: bool) -> int:
    """Stays until `q` or Ctrl-C, both of which are the end that people want."""
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.fleet.status_watch import Picture, watch_in_lines, watch_on_screen
    from kakeya_fleet.node.cli.terminal.live_screen import LiveScreen
    from kakeya_fleet.node.cli.terminal.output import shows_pictures, terminal

    console = None
    if not as_json and shows_pictures(sys.stdout):
        console = terminal(sys.stdout)
    picture = Picture()
    screens: list[LiveScreen] = []

    async def show(client: AsyncClient) -> None:
        if console is None:
            await watch_in_lines(client, as_json=as_json)
            return
        screen = LiveScreen(console, picture.draw, press)
        screens.append(screen)
        await watch_on_screen(client, picture, screen)

    def press(key: str) -> None:
        if key == "q":
            screens[0].close()

    def farewell() -> None:
        for screen in screens:
            screen.abandon()

    with suppress(KeyboardInterrupt):
        ask(address, show, farewell=farewell)
    if console is not None:
        _print(picture, as_json=False)
    return ExitCode.OK


def _print(picture: Picture, *, as_json: bool) -> None:
    from kakeya_fleet.node.cli.fleet.table import COLUMNS, heading, rows
    from kakeya_fleet.node.cli.terminal.output import (
        fields_of,
        print_table,
        say,
        terminal,
        write_json,
    )

    snapshot, hosts, notes = picture.snapshot(), picture.hosts(), picture.notes()
    if as_json:
        memory = [fields_of(host) for host in hosts]
        faults = [fields_of(fault) for fault in picture.seed_faults()]
        ways = picture.ways()
        write_json({**fields_of(snapshot), "memory": memory, "seed_faults": faults, "ways": ways})
        return
    print_table(
        COLUMNS,
        rows(snapshot.nodes, hosts, ways=picture.ways()),
        stream=sys.stdout,
        title=heading(snapshot, hosts),
    )
    console = terminal(sys.stdout)
    for line in notes:
        if console is None:
            say(line)
        else:
            console.print(line, style="yellow", markup=False, soft_wrap=True)


async def _show_links(client: AsyncClient, *, as_json: bool) -> int:
    from kakeya_fleet.node.cli.fleet.link_table import COLUMNS, heading, rows
    from kakeya_fleet.node.cli.terminal.output import fields_of, print_table, say, write_json

    asked = await client.fleet.node()
    if as_json:
        links = [fields_of(link) for link in asked.tensor_links]
        write_json({"node": asked.card.name, "tensor_links": links})
        return ExitCode.OK
    names = {node.node_id: node.name for node in await client.fleet.nodes()}
    lines = rows(asked.tensor_links, names)
    if lines:
        print_table(COLUMNS, lines, stream=sys.stdout, title=heading(asked))
    else:
        say(heading(asked))
    return ExitCode.OK
