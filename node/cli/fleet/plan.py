"""`fleet plan`: who would draft for whom, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.known_names import complete_proposers
from kakeya_fleet.node.cli.asking.kv_options import kv_options
from kakeya_fleet.node.cli.asking.options import json_option, node_option, verifier_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya import AsyncClient
    from kakeya_fleet.node.cli.asking.kv_options import KvChoice

EXAMPLE = """\b
Example:
  fleet plan --verifier tiny --context 4096
  fleet plan --verifier tiny --proposer ngram --block-size 8 --json
"""


@click.command("plan", epilog=EXAMPLE)
@verifier_option(required=False)
@click.option(
    "--proposer",
    metavar="MODEL",
    default="",
    shell_complete=complete_proposers,
    help="Proposer model. Default: any.",
)
@click.option(
    "--context",
    "context_tokens",
    type=click.IntRange(0, 2**32 - 1),
    default=1024,
    show_default=True,
    help="Longest history to plan for, in tokens.",
)
@click.option(
    "--block-size",
    type=click.IntRange(1, 64),
    help="Drafted tokens a block. Default: the planner chooses.",
)
@kv_options
@node_option
@json_option
def command(
    verifier: str | None,
    proposer: str,
    context_tokens: int,
    block_size: int | None,
    node: str | None,
    *,
    kv: KvChoice,
    as_json: bool,
) -> int:
    """Show which proposer would draft for which verifier: a dry run.

    Prints the predicted speed against the verifier alone, the reasons, and for
    every other pairing why it was not chosen.
    """
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.asking.models import archive_node, verifier_model
    from kakeya_fleet.node.cli.fleet.plan_text import plan_lines
    from kakeya_fleet.node.cli.terminal.output import fields_of, fitted, say, write_json

    async def show(client: AsyncClient) -> int:
        model = await verifier_model(client, verifier)
        plan = await client.fleet.plan(
            model,
            proposer_model=proposer,
            context_tokens=context_tokens,
            **kv.options(await archive_node(client, kv.restorer_node)),
            block_size=block_size or 0,
        )
        if as_json:
            write_json(fields_of(plan))
            return ExitCode.OK
        lines = [f"plan for {model}, {context_tokens:,} tokens of context"]
        lines += plan_lines(plan)
        say(fitted("\n".join(lines), sys.stdout))
        return ExitCode.OK

    return ask(node, show)
