"""What each node of a fleet has pulled: the nearest ones are asked, many at once, not for long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from kakeya import AsyncClient, KakeyaError, NodeStatus, StoredModel, Timeouts
from kakeya_fleet.node.cli.asking.access import Callers
from kakeya_fleet.node.cli.asking.node_loads import AT_ONCE, nearest_living
from kakeya_fleet.node.cli.asking.told_values import sanitized
from kakeya_fleet.node.cli.terminal.quantities import bytes_text
from kakeya_fleet.node.cli.terminal.tables import Cell, Column, Row

ANSWER_SECONDS = 5.0
"""A node reads its folders for the answer."""
COLUMNS = [
    Column("node"),
    Column("model"),
    Column("on disk", right=True),
    Column("served"),
    Column("from", folds=1),
]


@dataclass(frozen=True, slots=True)
class OnNode:
    """What a node has pulled; None where it did not say."""

    node: NodeStatus
    models: tuple[StoredModel, ...] | None


async def stored_on_all(client: AsyncClient, via: str) -> list[OnNode]:
    """Of the nearest living nodes, by name; `client` is of the node at `via`, host:port."""
    at_once, callers = asyncio.Semaphore(AT_ONCE), Callers(via)

    async def ask(node: NodeStatus) -> OnNode:
        timeouts = Timeouts(unary=ANSWER_SECONDS)
        async with at_once, callers.client(node.address, timeouts) as asked:
            try:
                found = await asked.fleet.stored_models()
            except KakeyaError:
                # Silent, or of a version that has no such models.
                return OnNode(node, None)
        return OnNode(node, tuple(map(sanitized, found)))

    nodes = nearest_living(await client.fleet.nodes())
    told = await asyncio.gather(*map(ask, nodes))
    return sorted(told, key=lambda each: (each.node.name, each.node.node_id))


def rows(told: Sequence[OnNode]) -> list[Row]:
    """A row a model, and one of a node that does not say."""
    found: list[Row] = []
    for each in told:
        if each.models is None:
            found.append([Cell(each.node.name, "bold"), Cell("does not say", "dim"), "", "", ""])
        found += [[Cell(each.node.name, "bold"), *_cells(model)] for model in each.models or ()]
    return found


def _cells(model: StoredModel) -> list[Cell]:
    size = bytes_text(model.byte_count)
    return [
        Cell(model.model_id),
        Cell(size if model.is_whole else f"{size}, in part"),
        Cell("yes" if model.is_served else "no"),
        Cell(", ".join(model.source_names), "dim"),
    ]
