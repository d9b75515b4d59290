"""The tensor links of one node as a table: one link a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kakeya import Node, TensorLink, Transport
from kakeya_fleet.node.cli.terminal.quantities import bytes_text, rate_text, seconds_text
from kakeya_fleet.node.cli.terminal.tables import Cell, Column, Row

COLUMNS = (
    Column("peer"),
    Column("for", folds=6),
    Column("transport", folds=7),
    Column("generation", right=True, folds=2),
    Column("throughput", right=True, folds=5),
    Column("carried", right=True, folds=3),
    Column("age", right=True, folds=4),
    Column("why", folds=1),
)

_STYLES = {Transport.RING: "green", Transport.LOCAL: "green"}


def heading(node: Node) -> str:
    """`mini-1: 2 tensor links`."""
    count = len(node.tensor_links)
    return f"{node.card.name}: {count or 'no'} tensor link{'' if count == 1 else 's'}"


def rows(links: Iterable[TensorLink], names: Mapping[str, str]) -> list[Row]:
    """A row for each link, by peer; `names` of nodes by id."""
    named = [(names.get(link.peer_node_id, link.peer_node_id[:12]), link) for link in links]
    named.sort(key=lambda pair: (pair[0], pair[1].purpose, pair[1].is_caller))
    return [_row(name, link) for name, link in named]


def _row(name: str, link: TensorLink) -> Row:
    return [
        Cell(f"{name} {'(opened here)' if link.is_caller else '(opened there)'}", "bold"),
        link.purpose.value.replace("_", " "),
        Cell(link.transport.value, _STYLES.get(link.transport, "")),
        str(link.generation) if link.generation else "-",
        rate_text(link.bytes_per_second),
        f"{bytes_text(link.byte_count)} in {link.tensor_count:,}",
        seconds_text(max(0.0, link.changed_seconds_ago)),
        Cell(_why(link), "yellow" if link.demotion_count else ""),
    ]


def _why(link: TensorLink) -> str:
    """The reason of the latest change, and how often a road was left."""
    count = link.demotion_count
    left = "" if not count else f" (demoted {'once' if count == 1 else f'{count} times'})"
    return f"{link.reason or '-'}{left}"
