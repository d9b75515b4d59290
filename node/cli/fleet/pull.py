"""`fleet pull`: a node gets a model's files onto its disk, from others that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.known_names import complete_on_others
from kakeya_fleet.node.cli.asking.options import NodeChoice, json_option
from kakeya_fleet.node.cli.fleet.model_options import whose_option
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from kakeya import AsyncClient, NodeStatus

EXAMPLE = """\b
Example:
  fleet pull mistral
  fleet pull mistral --to mini-2 --from mini-1 --from studio
  fleet pull organisation/name --json
"""


@click.command("pull", epilog=EXAMPLE)
@click.argument("model", shell_complete=complete_on_others)
@whose_option("--to", "Node that gets it")
@click.option(
    "--from",
    "sources",
    type=NodeChoice(),
    multiple=True,
    metavar="NODE",
    help="Node to copy it from, by name or address; may be given up to 8 times. Default: all that "
    "have it, or else the hub.",
)
@json_option
def command(model: str, node: str | None, sources: tuple[str, ...], *, as_json: bool) -> int:
    """Have a node get the files of MODEL onto its disk, and wait until they are there.

    MODEL is what `fleet status` calls it, where another node serves it or has pulled it, or a hub
    id. Every piece is compared with its digest; a node that gives others is named and left.
    Ctrl-C ends the waiting, not the pull; one that was broken off goes on where it ended.
    `fleet load MODEL` serves it then, `fleet rm MODEL` removes it. On another machine it takes a
    fleet with an authority, and a node of this machine that is a keeper.
    """
    from kakeya import ModelNotFound
    from kakeya_fleet.node.cli.asking.asked_node import chosen_address
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.fleet.pull_view import PullView
    from kakeya_fleet.node.cli.shell.remedies import sentence
    from kakeya_fleet.node.cli.terminal.output import note

    views: list[PullView] = []

    async def work(client: AsyncClient) -> int:
        name = (await client.fleet.node()).card.name
        ids = _ids(await client.fleet.nodes(), sources) if sources else []
        view = PullView(model, name, as_json=as_json)
        views.append(view)
        pull = client.fleet.pull_model(model, sources=ids)
        try:
            async for progress in pull:
                view.take(progress)
        except ModelNotFound as error:
            # What mends it is not to serve it.
            message = sentence(error.problem)
            raise CommandFailed(error.reason, message, metadata=error.metadata) from error
        finally:
            view.close()
        assert pull.pulled is not None  # the iteration came to its end
        view.end(pull.pulled)
        return ExitCode.OK

    try:
        return ask(chosen_address(node, f"gets {model}", may_ask=not as_json), work)
    except KeyboardInterrupt:
        if any(view.has_begun for view in views):
            note(f"the node goes on pulling {model}; `fleet pull {model}` waits for it again")
        raise


def _ids(nodes: tuple[NodeStatus, ...], wanted: tuple[str, ...]) -> list[str]:
    """Ids of the nodes of these names or addresses. Raises `CommandFailed`."""
    from kakeya_fleet.node.cli.asking.node_names import only_node

    found = []
    for each in wanted:
        at = next((node for node in nodes if node.address == each), None)
        node = at or only_node(nodes, each)
        if node is None:
            known = ", ".join(sorted(node.name for node in nodes if not node.is_self)) or "none"
            raise CommandFailed(
                "NODE_NOT_FOUND",
                f"no other node is called {each!r}; there are: {known}.",
                metadata={"node": each},
            )
        found.append(node.node_id)
    return found
