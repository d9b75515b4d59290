"""`fleet unload`: a node that runs serves a model no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.known_names import complete_served
from kakeya_fleet.node.cli.asking.options import json_option
from kakeya_fleet.node.cli.fleet.model_options import on_option, role_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya import AsyncClient

EXAMPLE = """\b
Example:
  fleet unload smollm2
  fleet unload smollm2 --on mini-2 --drain 30
"""


@click.command("unload", epilog=EXAMPLE)
@click.argument("model", shell_complete=complete_served)
@on_option
@role_option("In which role, where the node serves it in two.")
@click.option(
    "--drain",
    "drain_seconds",
    type=click.FloatRange(0, 3600, min_open=True),
    default=5.0,
    show_default=True,
    help="Seconds that running answers may take to end.",
)
@json_option
def command(
    model: str, node: str | None, role: str | None, drain_seconds: float, *, as_json: bool
) -> int:
    """Have a node that runs serve MODEL no more, and wait until its memory is free.

    Sessions that can go on elsewhere do, from their tokens. It is refused while a model is
    loaded there. On another machine it takes a fleet with an authority, and a node of this
    machine that is a keeper.
    """
    from kakeya import Role
    from kakeya_fleet.node.cli.asking.asked_node import chosen_address
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.fleet.model_names import name_to_unload
    from kakeya_fleet.node.cli.terminal.output import fields_of, say, write_json
    from kakeya_fleet.node.cli.terminal.quantities import bytes_text

    async def work(client: AsyncClient) -> int:
        name = (await client.fleet.node()).card.name
        unloaded = await client.fleet.unload_model(
            name_to_unload(model), role=Role(role) if role else None, drain_seconds=drain_seconds
        )
        if as_json:
            write_json({"event": "unloaded", "node": name, **fields_of(unloaded)})
        else:
            say(
                f"{name} serves {unloaded.model_id} as a {unloaded.role.value} no more;"
                f" {bytes_text(unloaded.memory_free_bytes)} of its memory are free"
            )
        return ExitCode.OK

    return ask(chosen_address(node, f"unloads {model}", may_ask=not as_json), work)
