"""The fleet as a table: one node a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kakeya import FleetSnapshot, Liveness, NodeStatus
from node.cli.quantities import bytes_text, seconds_text
from node.cli.tables import Cell, Column, Row, memory_bar

COLUMNS = (
    Column("node"),
    Column("roles"),
    Column("models"),
    Column("memory"),
    Column("liveness"),
    Column("seen", right=True),
    Column("round trip", right=True),
    Column("address"),
)

_STYLES = {
    Liveness.ALIVE: "green",
    Liveness.SUSPECT: "yellow",
    Liveness.DEAD: "red",
    Liveness.LEFT: "dim",
}


def heading(snapshot: FleetSnapshot) -> str:
    """`fleet "default": 3 nodes, 2 alive`."""
    count = len(snapshot.nodes)
    alive = sum(node.liveness is Liveness.ALIVE for node in snapshot.nodes)
    return f'fleet "{snapshot.fleet_name}": {count} node{"" if count == 1 else "s"}, {alive} alive'


def rows(nodes: Iterable[NodeStatus], *, waited_seconds: float = 0.0) -> list[Row]:
    """A row for each node; ages grow by the `waited_seconds` since they were told."""
    return [_row(node, waited_seconds) for node in nodes]


def _row(node: NodeStatus, waited_seconds: float) -> Row:
    style = "" if node.liveness is Liveness.ALIVE else "dim"
    here = node.is_self
    age = node.age_seconds + waited_seconds
    trip = node.round_trip_seconds
    return [
        Cell(f"{node.name} *" if here else node.name, style or "bold"),
        Cell(_joined(model.role.value for model in node.models), style),
        Cell(_joined(model.model_id for model in node.models), style),
        _memory(node, style),
        Cell(node.liveness.value, _STYLES.get(node.liveness, "")),
        Cell("here" if here else f"{_age_text(age)} ago", style),
        Cell("-" if here or trip is None else seconds_text(trip), style),
        Cell(node.address or "-", style),
    ]


def _memory(node: NodeStatus, style: str) -> Cell:
    if node.card is None or not node.card.memory_total_bytes:
        return Cell("-", style)
    total = node.card.memory_total_bytes
    used = max(0, total - node.card.memory_free_bytes)
    return Cell(f"{bytes_text(used)} / {bytes_text(total)}", style, memory_bar(used, total))


def _age_text(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else seconds_text(seconds)


def _joined(words: Iterable[str]) -> str:
    unique: Sequence[str] = list(dict.fromkeys(words))
    return ", ".join(unique) or "-"
