"""Which models the fleet serves, and which one a command means."""

from __future__ import annotations

from kakeya import AsyncClient, Liveness, NodeStatus, Role, Speculation
from kakeya_fleet.node.cli.asking.node_names import only_node
from kakeya_fleet.node.cli.asking.tokenizer import model_id_of
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode


async def verifier_model(client: AsyncClient, spec: str | None) -> str:
    """The model that `spec` names; without one, the only verifier that the fleet serves.

    Raises `CommandFailed` when nobody serves one, or several are served.
    """
    return verifier_of(() if spec is not None else await client.fleet.nodes(), spec)


def verifier_of(nodes: tuple[NodeStatus, ...], spec: str | None) -> str:
    """As `verifier_model`, from the nodes that are known."""
    if spec is not None:
        return model_id_of(spec)
    served = served_models(nodes, Role.VERIFIER)
    if not served:
        raise CommandFailed(
            "MODEL_NOT_FOUND",
            "no live node serves a verifier: start one with `fleet join --serve verifier=tiny`.",
        )
    if len(served) > 1:
        raise CommandFailed(
            "USAGE",
            f"the fleet serves several verifiers: choose one of {', '.join(served)} "
            "with --verifier.",
            exit_code=ExitCode.USAGE,
        )
    return served[0]


def served_models(nodes: tuple[NodeStatus, ...], role: Role) -> list[str]:
    """Ids of the models that live nodes serve in `role`, sorted."""
    return sorted(
        {
            model.model_id
            for node in nodes
            if node.liveness is Liveness.ALIVE
            for model in node.models
            if model.role is role
        }
    )


async def find_proposer(client: AsyncClient, text: str) -> Speculation:
    """The proposer that `MODEL` or `MODEL@NODE` names; NODE is a name or the start of an id.

    Raises `CommandFailed` when no live node of that name serves it, or several do.
    """
    model, _, wanted = text.partition("@")
    nodes = [
        node
        for node in await client.fleet.nodes()
        if node.liveness is Liveness.ALIVE
        and any(offer.model_id == model and offer.role is Role.PROPOSER for offer in node.models)
    ]
    called = only_node(nodes, wanted) if wanted else None
    if not nodes or (wanted and called is None):
        where = f"; {', '.join(node.name for node in nodes)} would" if nodes else ""
        raise CommandFailed(
            "MODEL_NOT_FOUND",
            f"no live node{' called ' + wanted if wanted else ''} serves the proposer "
            f"{model!r}{where}: see `fleet status`.",
            metadata={"proposer_model": model, "node": wanted},
        )
    return Speculation(model, called.node_id if called else "")


async def archive_node(client: AsyncClient, wanted: str) -> str:
    """The id of the node with an archive that a name or the start of an id names.

    Empty for an empty name. Raises `CommandFailed` when no live node has one, or several do.
    """
    return archive_node_of(await client.fleet.nodes(), wanted) if wanted else ""


def archive_node_of(known: tuple[NodeStatus, ...], wanted: str) -> str:
    """As `archive_node`, of the nodes that are known."""
    if not wanted:
        return ""
    nodes = [node for node in known if node.liveness is Liveness.ALIVE and node.archive is not None]
    called = only_node(nodes, wanted)
    if called is not None:
        return called.node_id
    others = ", ".join(node.name for node in nodes)
    raise CommandFailed(
        "NO_ARCHIVE",
        f"no live node called {wanted} has an archive"
        f"{'; there is one on ' + others if others else ''}: see `fleet status`.",
        metadata={"node": wanted},
    )
