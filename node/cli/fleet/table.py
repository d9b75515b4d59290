"""The fleet as a table: one node a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from kakeya import FleetSnapshot, Liveness, ModelOffer, Node, NodeStatus, Role
from kakeya_fleet.node.cli.fleet.host_memory import HostMemory, host_text, total_text
from kakeya_fleet.node.cli.terminal.quantities import (
    bytes_text,
    exact_bytes_text,
    seconds_text,
    told_share_text,
)
from kakeya_fleet.node.cli.terminal.tables import Cell, Column, Row, memory_bar

COLUMNS = (
    Column("node"),
    Column("serves", folds=1),
    Column("memory in use", folds=2),
    Column("CPU", right=True, folds=6),
    Column("liveness", folds=7),
    Column("round trip", right=True, folds=5),
    Column("address", folds=8),
)

LOAD_COLUMNS = (
    Column("sessions", right=True, folds=4),
    Column("K/V", right=True, folds=3),
)

_STYLES = {
    Liveness.ALIVE: "green",
    Liveness.SUSPECT: "yellow",
    Liveness.DEAD: "red",
    Liveness.LEFT: "dim",
}


def heading(snapshot: FleetSnapshot, hosts: Sequence[HostMemory] = ()) -> str:
    """`fleet "default": 3 nodes, 2 alive, 13.2 / 64.0 GiB in use on 1 machine`."""
    count = len(snapshot.nodes)
    alive = sum(node.liveness is Liveness.ALIVE for node in snapshot.nodes)
    text = f'fleet "{snapshot.fleet_name}": {count} node{"" if count == 1 else "s"}, {alive} alive'
    return ", ".join(filter(None, (text, total_text(hosts))))


def rows(
    nodes: Iterable[NodeStatus],
    hosts: Iterable[HostMemory] = (),
    *,
    ways: Mapping[str, str] = MappingProxyType({}),
    waited_seconds: float = 0.0,
) -> list[Row]:
    """A row for each node; ages grow by the `waited_seconds` since they were told.

    `hosts` are the machines with the memory that is in use now, `ways` the addresses at which
    the asked node reaches others, by node id.
    """
    machines = machines_of(hosts)
    return [
        row(node, machines.get(node.node_id), ways.get(node.node_id, ""), waited_seconds)
        for node in nodes
    ]


def machines_of(hosts: Iterable[HostMemory]) -> dict[str, HostMemory]:
    """The machines by the ids of their nodes."""
    return {node_id: host for host in hosts for node_id, _ in host.nodes}


def load_cells(node: Node | None) -> list[Cell]:
    """Cells of `LOAD_COLUMNS`: sessions, of them generating, and their keys and values."""
    if node is None:
        return [Cell("-", "dim")] * len(LOAD_COLUMNS)
    load = node.load
    running = f" ({load.generating_count} run)" if load.generating_count else ""
    style = "green" if load.generating_count else ""
    return [Cell(f"{load.session_count}{running}", style), Cell(bytes_text(load.kv_bytes))]


def row(node: NodeStatus, host: HostMemory | None, way: str, waited_seconds: float) -> Row:
    """A node's row of `rows`, for who has looked up its machine and the way to it."""
    style = "" if node.liveness is Liveness.ALIVE else "dim"
    trip = node.round_trip_seconds
    return [
        Cell(f"{node.name} *" if node.is_self else node.name, style or "bold"),
        Cell(_served(node), style or _exactness_style(node)),
        _memory(node, host, style),
        Cell(_cpu(node, host), style),
        Cell(_liveness(node, waited_seconds), _STYLES.get(node.liveness, "")),
        Cell("-" if node.is_self or trip is None else seconds_text(trip), style),
        Cell(_address(node, way), style),
    ]


def _address(node: NodeStatus, way: str) -> str:
    """Where it answers the asked node, or else says that it does; whether it has a ring."""
    has_ring = node.card is not None and bool(node.card.ring_address)
    return f"{way or node.address or '-'}{', ring' if has_ring else ''}"


def _served(node: NodeStatus) -> str:
    """`verifier=tiny (not exact), proposer=tiny-dflash (dflash)`: roles, models, kinds."""
    served = [_offer(model) for model in node.models]
    if node.archive is not None:
        served.append(f"archive={exact_bytes_text(node.archive.capacity_bytes)}")
    return ", ".join(served) or "-"


def _offer(model: ModelOffer) -> str:
    text = f"{model.role.value}={model.model_id}"
    if model.rank_count:
        text += f" on {model.rank_count} ranks"
    if _is_inexact(model):
        return f"{text} (not exact)"
    kind = model.kind.value.replace("_", "-")
    return f"{text} ({kind})" if model.role is Role.PROPOSER and kind != model.model_id else text


def _exactness_style(node: NodeStatus) -> str:
    return "yellow" if any(_is_inexact(model) for model in node.models) else ""


def _is_inexact(model: ModelOffer) -> bool:
    """Whether drafts could change what the model decides; proposers decide nothing."""
    return model.role is Role.VERIFIER and not model.exact


def _liveness(node: NodeStatus, waited_seconds: float) -> str:
    if node.is_self:
        return f"{node.liveness.value}, here"
    age = node.age_seconds + waited_seconds
    text = f"{age:.1f} s" if age < 60 else seconds_text(age)
    return f"{node.liveness.value}, {text} ago"


def _cpu(node: NodeStatus, host: HostMemory | None) -> str:
    """A machine's once, in the row that has its memory."""
    if host is None or node.node_id != host.nodes[0][0]:
        return "-"
    return told_share_text(host.cpu_share)


def _memory(node: NodeStatus, host: HostMemory | None, style: str) -> Cell:
    if host is None:
        return Cell("-", style)
    text = host_text(host, node.node_id)
    if host.used_bytes is None or node.node_id != host.nodes[0][0]:
        return Cell(text, style)
    return Cell(text, style, memory_bar(host.used_bytes, host.total_bytes))
