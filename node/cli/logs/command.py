"""`fleet logs`: what happened on a node, and what happens."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.duration import Duration
from kakeya_fleet.node.cli.asking.known_names import complete_nodes
from kakeya_fleet.node.cli.asking.options import NodeChoice, json_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from kakeya import AsyncClient
    from kakeya_fleet.node.cli.logs.log_file import LogTail

EXAMPLE = """\b
Example:
  fleet logs
  fleet logs mini-2 --since 10m
  fleet logs --follow --json | jq 'select(.severity == "error") | .message'
"""


def _complete(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Names of the fleet's nodes; those of this machine, and addresses, where nobody answers."""
    names = complete_nodes(context, parameter, incomplete)
    return names or NodeChoice().shell_complete(context, parameter, incomplete)


@click.command("logs", epilog=EXAMPLE)
@click.argument(
    "node",
    required=False,
    type=NodeChoice(),
    envvar="KAKEYA_NODE",
    metavar="[NODE]",
    shell_complete=_complete,
)
@click.option("--follow", "-f", "follows", is_flag=True, help="Stay, and show what happens.")
@click.option(
    "--since",
    "since_seconds",
    type=Duration(),
    metavar="DURATION",
    help="Begin so long ago: 90s, 10m, 2h, 1d. Default: with the oldest that is kept.",
)
@json_option
def command(node: str | None, since_seconds: float | None, *, follows: bool, as_json: bool) -> int:
    """Show the events of a node, the oldest first: NODE is a name, the start of an id, HOST:PORT.

    A node keeps its latest 256 events since its start. Its log goes to its standard error: where
    that is a file, and the node runs here (on Linux), the end of the file is shown among the
    events. With --follow until Ctrl-C.
    """
    from kakeya_fleet.node.cli.asking.asked_node import asked_address
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.logs.following import print_node
    from kakeya_fleet.node.cli.terminal.output import note

    address = asked_address(node)
    with ExitStack() as stack:
        tail, told = _tail(address)
        if tail is not None:
            stack.callback(tail.close)
        if told and not as_json:
            note(told)

        async def show(client: AsyncClient) -> None:
            await print_node(client, tail, since_seconds, follows=follows, as_json=as_json)

        if not follows:
            ask(address, show)
            return ExitCode.OK
        with suppress(KeyboardInterrupt):
            ask(address, show, farewell=_farewell)
    return ExitCode.OK


def _farewell() -> None:
    """Nothing is left to say when Ctrl-C ends the process without waiting."""


def _tail(address: str) -> tuple[LogTail | None, str]:
    """The log of the agent of this machine at `address`, and a sentence on where it is."""
    from kakeya_fleet.node.cli.asking.local_agents import agents_here
    from kakeya_fleet.node.cli.logs.log_file import LogTail, error_stream, log_file

    agent = next((each for each in agents_here() if each.address == address), None)
    if agent is None:
        return None, ""
    path = log_file(agent.process_id)
    if path is not None:
        try:
            return LogTail(path), f"events of {agent.name}, with its log {path}"
        except OSError as error:
            told = f"{path} cannot be opened ({error.strerror})"
            return None, f"events of {agent.name} alone: its log {told}"
    leads = error_stream(agent.process_id) or "where this system does not tell"
    return None, f"events of {agent.name} alone: its log is no file here, but goes to {leads}"
