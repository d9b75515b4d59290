"""`fleet top`: nodes, sessions, transfers and events on one live screen."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.known_names import complete_sessions
from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya import AsyncClient
    from kakeya_fleet.node.cli.top.screen import TopScreen

EXAMPLE = """\b
Example:
  fleet top
  fleet top --once
  fleet top --session 3f2a
  fleet top --once --json | jq '.sessions[].acceptance_length'

\b
Work: a verifier's tokens a second (t/s), a proposer's drafts a second (d/s), what an
archive keeps. Acc: a verifier's acceptance length; what is accepted of a proposer's drafts.
Blocks: a cell a token; ■ accepted, □ rejected, + the verifier's own.
Split: where the seconds go: waiting for draft and wire, and verifying.
"""


@click.command("top", epilog=EXAMPLE)
@click.option("--once", is_flag=True, help="Print one frame and end.")
@click.option(
    "--session",
    "session_id",
    default="",
    metavar="ID",
    shell_complete=complete_sessions,
    help="Begin with the details of this session; the start of its id will do.",
)
@node_option
@json_option
def command(session_id: str, node: str | None, *, once: bool, as_json: bool) -> int:
    """Watch nodes, sessions, transfers and events live.

    Keys: arrows and tab move, enter shows details, s sorts, p pauses, q ends. With
    --json, or without a terminal: one object, or one frame, a second.
    """
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.terminal.output import shows_pictures, terminal
    from kakeya_fleet.node.cli.top.screen import TopScreen, print_frames

    console = None
    if not as_json and not once and shows_pictures(sys.stdout):
        console = terminal(sys.stdout)
    screens: list[TopScreen] = []

    async def show(client: AsyncClient) -> None:
        if console is None:
            await print_frames(client, session_id, as_json=as_json, once=once)
            return
        screens.append(TopScreen(client, console, session_id))
        await screens[0].run()

    def farewell() -> None:
        for screen in screens:
            screen.abandon()

    if once:
        ask(node, show)
        return ExitCode.OK
    with suppress(KeyboardInterrupt):
        ask(node, show, farewell=farewell)
    return ExitCode.OK
