"""Nodes by name: a name that several nodes have names none of them."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya import NodeStatus
from kakeya_fleet.node.cli.shell.failure import CommandFailed


def nodes_called(nodes: Sequence[NodeStatus], wanted: str) -> list[NodeStatus]:
    """The nodes of that name, or else those whose ids begin so."""
    named = [node for node in nodes if node.name == wanted]
    return named or [node for node in nodes if node.node_id.startswith(wanted)]


def only_node(nodes: Sequence[NodeStatus], wanted: str) -> NodeStatus | None:
    """The one of them that `wanted` names, a name or the start of an id; None without one.

    Raises `CommandFailed` when it names several.
    """
    called = nodes_called(nodes, wanted)
    if len(called) > 1:
        raise CommandFailed(
            "NODE_AMBIGUOUS",
            f"{len(called)} nodes are called {wanted!r}: "
            f"{_pairs([(node.node_id[:12], node.address) for node in called])}. Give the start "
            "of the id.",
            metadata={"node": wanted},
        )
    return called[0] if called else None


def ambiguous(name: str, found: Sequence[tuple[str, str]]) -> CommandFailed:
    """The refusal of a name where an address is wanted; `found` are (address, what it is)."""
    return CommandFailed(
        "NODE_AMBIGUOUS",
        f"{len(found)} nodes are called {name!r}: {_pairs(found)}. Give --node HOST:PORT.",
        metadata={"node": name},
    )


def _pairs(found: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{first} ({second})" for first, second in found)
