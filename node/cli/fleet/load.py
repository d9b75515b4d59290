"""`fleet load`: a node that runs serves one more model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.duration import Duration
from kakeya_fleet.node.cli.asking.known_names import complete_models
from kakeya_fleet.node.cli.asking.options import json_option
from kakeya_fleet.node.cli.fleet.model_options import on_option, role_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya import AsyncClient

EXAMPLE = """\b
Example:
  fleet load smollm2
  fleet load smollm2 --on mini-2 --as proposer
  fleet load ./models/mistral.gguf --weights int4
  fleet load smollm2 --unload-after 30m
  fleet load tiny --json
"""


@click.command("load", epilog=EXAMPLE)
@click.argument("model", shell_complete=complete_models)
@on_option
@role_option("In which role. Default: verifier.")
@click.option(
    "--weights",
    type=click.Choice(["auto", "bf16", "int8", "int4"]),
    help="What its products take its weights as. Default: what the node was started with.",
)
@click.option(
    "--unload-after",
    "unload_after_seconds",
    type=Duration(or_never=True),
    metavar="DURATION|never",
    help="Unload it when it had no session for so long, such as 30m. Default: what the node was "
    "started with, else never.",
)
@json_option
def command(
    model: str,
    node: str | None,
    role: str | None,
    weights: str | None,
    unload_after_seconds: float | None,
    *,
    as_json: bool,
) -> int:
    """Have a node that runs serve MODEL too, and wait until it does.

    MODEL is what `fleet join --serve` takes: smollm2, tiny, a folder, a .gguf, what was pulled, a
    hub id; for a proposer also ngram or MODEL@TARGET. What the node serves goes on meanwhile, and
    after a failure. Ctrl-C ends the waiting, not the load. On another machine it takes a fleet with
    an authority, a node of this machine that is a keeper, and a name that is no path.
    """
    from kakeya import Role
    from kakeya_fleet.node.cli.asking.asked_node import chosen_address
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.fleet.load_view import LoadView
    from kakeya_fleet.node.cli.fleet.loading import load
    from kakeya_fleet.node.cli.fleet.model_names import name_to_load
    from kakeya_fleet.node.cli.terminal.output import note

    views: list[LoadView] = []

    async def work(client: AsyncClient) -> int:
        name = (await client.fleet.node()).card.name
        view = LoadView(model, name, as_json=as_json)
        views.append(view)
        loaded = await load(
            client,
            view,
            name_to_load(model),
            role=Role(role) if role else None,
            weights=weights or "",
            unload_after_seconds=unload_after_seconds,
        )
        view.end(loaded)
        return ExitCode.OK

    try:
        return ask(chosen_address(node, f"loads {model}", may_ask=not as_json), work)
    except KeyboardInterrupt:
        if any(view.has_begun for view in views):
            note(f"the node goes on loading {model}; `fleet load {model}` waits for it again")
        raise
