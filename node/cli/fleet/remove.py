"""`fleet rm`: what a pull brought to a node's disk is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.known_names import complete_pulled
from kakeya_fleet.node.cli.asking.options import json_option
from kakeya_fleet.node.cli.fleet.model_options import on_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya import AsyncClient

EXAMPLE = """\b
Example:
  fleet rm mistral
  fleet rm mistral --on mini-2
"""


@click.command("rm", epilog=EXAMPLE)
@click.argument("model", shell_complete=complete_pulled)
@on_option
@json_option
def command(model: str, node: str | None, *, as_json: bool) -> int:
    """Remove from a node's disk what `fleet pull` brought, whole or in part.

    A pull that runs is given up; a model that the node serves has to be unloaded first. Folders and
    files that people put there, and the hub's cache, are left alone. On another machine it takes a
    fleet with an authority, and a node of this machine that is a keeper.
    """
    from kakeya_fleet.node.cli.asking.asked_node import chosen_address
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.terminal.output import fields_of, say, write_json
    from kakeya_fleet.node.cli.terminal.quantities import bytes_text

    async def work(client: AsyncClient) -> int:
        name = (await client.fleet.node()).card.name
        removed = await client.fleet.remove_model(model)
        if as_json:
            write_json({"event": "removed", "node": name, **fields_of(removed)})
        else:
            size = bytes_text(removed.byte_count)
            say(f"{name} has {removed.model_id} on its disk no more; it took {size}")
        return ExitCode.OK

    return ask(chosen_address(node, f"removes {model}", may_ask=not as_json), work)
