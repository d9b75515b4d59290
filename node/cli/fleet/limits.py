"""`fleet limits`: what others may have of a node, what is taken of it, and why it is so much."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya import AsyncClient

EXAMPLE = """\b
Example:
  fleet limits
  fleet limits --node mini-1
  fleet limits --json | jq '.limits[] | select(.refused_full_count > 0)'
"""


@click.command("limits", epilog=EXAMPLE)
@node_option
@json_option
def command(node: str | None, *, as_json: bool) -> int:
    """Show what others may have of a node at once: places, bytes and seconds.

    With what is taken now, how many were refused since its start, and the reason or the
    formula of each bound. Of what callers share a fifth is kept for those who hold little.
    """
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.fleet.limit_table import COLUMNS, rows
    from kakeya_fleet.node.cli.terminal.output import fields_of, print_table, write_json

    async def show(client: AsyncClient) -> int:
        name = (await client.fleet.node()).card.name
        limits = await client.fleet.limits()
        if as_json:
            write_json({"node": name, "limits": [fields_of(each) for each in limits]})
        else:
            title = f"what others may have of {name}"
            print_table(COLUMNS, rows(limits), stream=sys.stdout, title=title)
        return ExitCode.OK

    return ask(node, show)
