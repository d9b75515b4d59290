"""`fleet logs`: what happened on a node, and what happens."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from kakeya_fleet.node.cli.asking.duration import Duration
from kakeya_fleet.node.cli.asking.options import NodeChoice, json_option, node_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya import AsyncClient
    from kakeya_fleet.node.cli.logs.log_file import LogTail

EXAMPLE = """\b
Example:
  fleet logs
  fleet logs mini-2 --since 10m
  fleet logs --follow --json | jq 'select(.severity == "error") | .message'
"""


@click.command("logs", epilog=EXAMPLE)
@click.argument("positional", required=False, type=NodeChoice(), metavar="[NODE]")
@node_option
@click.option("--follow", "-f", "follows", is_flag=True, help="Stay, and show what happens.")
@click.option(
    "--since",
    "since_seconds",
    type=Duration(),
    metavar="DURATION",
    help="Begin so long ago: 90s, 10m, 2h, 1d. Default: with the oldest that is kept.",
)
@json_option
@click.pass_context
def command(
    context: click.Context,
    positional: str | None,
    node: str | None,
    since_seconds: float | None,
    *,
    follows: bool,
    as_json: bool,
) -> int:
    """Show the events of a node, the oldest first: NODE is a name, the start of an id, HOST:PORT.

    A node keeps its latest 256 events since its start. Of a node that runs here the end of its log
    is shown among them: of the file that it was given by --log-file, or (on Linux) to which its
    standard error goes. With --follow until Ctrl-C.
    """
    from kakeya_fleet.node.cli.asking.asked_node import asked_address
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.logs.following import print_node
    from kakeya_fleet.node.cli.terminal.output import note

    by_option = context.get_parameter_source("node") is ParameterSource.COMMANDLINE
    if positional is not None and by_option and positional != node:
        raise click.UsageError("NODE and --node name two nodes; give one")
    address = asked_address(positional or node)
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
    from kakeya_fleet.node.cli.asking.agent_log import error_stream, log_file
    from kakeya_fleet.node.cli.asking.local_agents import agents_here
    from kakeya_fleet.node.cli.logs.log_file import LogTail

    agent = next((each for each in agents_here() if each.address == address), None)
    if agent is None:
        return None, ""
    path = log_file(agent)
    if path is not None:
        try:
            return LogTail(path), f"events of {agent.name}, with its log {path}"
        except OSError as error:
            told = f"{path} cannot be opened ({error.strerror})"
            return None, f"events of {agent.name} alone: its log {told}"
    leads = error_stream(agent.process_id) or "where this system does not tell"
    return None, f"events of {agent.name} alone: its log is no file here, but goes to {leads}"
