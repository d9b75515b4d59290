"""`fleet codecs`: what a node measured of the codecs that pack sessions; and to forget it."""

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
  fleet codecs
  fleet codecs --node mini-1
  fleet codecs --reset
  fleet codecs --reset smollm2
  fleet codecs --json | jq '.codecs[] | select(.qualities != [])'
"""

ALL = "\0"
"""What `--reset` without a model says: no model is called so."""


@click.command("codecs", epilog=EXAMPLE)
@click.option(
    "--reset",
    "model",
    is_flag=False,
    flag_value=ALL,
    metavar="[MODEL]",
    help="Forget what was measured, of one model or of all; open sessions keep their codec.",
)
@node_option
@json_option
def command(model: str | None, node: str | None, *, as_json: bool) -> int:
    """Show what a node measured of the codecs that pack sessions, and which of them they get.

    An idle verifier computes the beginning of a packed session's history as it lies and packed,
    and compares what would be chosen. By that --kv-quality high and economy get more bits, or
    fewer. To reset it is asked of a node of this machine only.
    """
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.fleet.codec_table import COLUMNS, rows
    from kakeya_fleet.node.cli.terminal.output import (
        fields_of,
        print_table,
        say,
        write_json,
    )

    async def reset(client: AsyncClient, asked: str) -> int:
        count = await client.fleet.reset_codecs(asked)
        name = (await client.fleet.node()).card.name
        if as_json:
            write_json({"node": name, "model": asked, "codec_count": count})
        else:
            say(f"{name} has forgotten what it measured of {count} codecs")
        return ExitCode.OK

    async def show(client: AsyncClient) -> int:
        name = (await client.fleet.node()).card.name
        codecs = await client.fleet.codecs()
        if as_json:
            write_json({"node": name, "codecs": [fields_of(each) for each in codecs]})
        elif codecs:
            title = f"codecs of packed sessions on {name}"
            print_table(COLUMNS, rows(codecs), stream=sys.stdout, title=title)
        else:
            say(f"{name} serves no verifier, whose sessions could be packed")
        return ExitCode.OK

    async def work(client: AsyncClient) -> int:
        if model is None:
            return await show(client)
        return await reset(client, "" if model == ALL else model)

    return ask(node, work)
