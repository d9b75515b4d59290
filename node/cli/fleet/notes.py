"""What people should know of a fleet besides its table: peers that are missing, names twice."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kakeya import Liveness, NodeStatus, SeedFault
from kakeya_fleet.fleet.views.names import free_name, shared_names
from kakeya_fleet.node.cli.asking.certificate_ends import late_line
from kakeya_fleet.node.cli.asking.node_loads import MOST_ASKED
from kakeya_fleet.node.cli.fleet.host_memory import HostMemory
from kakeya_fleet.node.cli.terminal.quantities import seconds_text

_PRESENT = (Liveness.ALIVE, Liveness.SUSPECT)


def note_lines(
    nodes: Sequence[NodeStatus], faults: Sequence[SeedFault], hosts: Sequence[HostMemory]
) -> list[str]:
    """Sentences; `faults` are those of the asked node, `hosts` the machines of the nodes."""
    lines = [fault_line(fault) for fault in faults]
    lines += name_lines(nodes)
    lines += filter(None, map(withheld_line, nodes))
    lines += filter(None, [late_line(nodes, time.time()), applications_line(nodes)])
    living = sum(node.liveness is Liveness.ALIVE for node in nodes)
    if living > MOST_ASKED:
        lines.append(
            f"Of {living} live nodes the {MOST_ASKED} nearest were asked for their memory."
        )
    if any(host.used_bytes is None for host in hosts):
        lines.append("?: no node of that machine told its memory when it was asked.")
    return lines


def withheld_line(node: NodeStatus) -> str:
    """What a node offers and may not serve; empty where it may serve all."""
    roles = ", ".join(role.value for role in node.withheld_roles)
    if not roles or node.liveness not in _PRESENT:
        return ""
    return (
        f"Keepers do not let {node.name} serve others as {roles}: nobody is sent there. "
        f"`fleet allow {node.name} ROLE` on a keeper does."
    )


def applications_line(nodes: Sequence[NodeStatus]) -> str:
    """Where applications with a key call the asked node; empty where none can."""
    card = next((each.card for each in nodes if each.is_self), None)
    if card is None or not card.addresses:
        return ""
    host = card.addresses[0].rpartition(":")[0]
    ways = []
    if card.applications_port:
        ways.append(f"{host}:{card.applications_port} (gRPC)")
    if card.https_port:
        ways.append(f"https://{host}:{card.https_port}")
    return f"Applications with a key call {' or '.join(ways)}." if ways else ""


def fault_line(fault: SeedFault) -> str:
    """What is wrong with a seed peer, for how long, and what mends it."""
    times = "once" if fault.attempt_count == 1 else f"{fault.attempt_count} times"
    tried = f"Tried {times} in {seconds_text(fault.since_seconds)}."
    return f"{fault.message} {tried} {fault.mend}".rstrip()


def name_lines(nodes: Sequence[NodeStatus]) -> list[str]:
    """One for each name that several nodes of the fleet have."""
    present = [node for node in nodes if node.liveness in _PRESENT]
    taken = {node.name for node in present}
    by_id = {node.node_id: node for node in present}
    lines = []
    for name, ids in shared_names((node.node_id, node.name) for node in present).items():
        where = ", ".join(f"{node_id[:12]} ({by_id[node_id].address})" for node_id in ids)
        lines.append(
            f"{len(ids)} nodes are called {name}: {where}. Who asks for that name is refused; "
            f"join again with another one, such as --name {free_name(name, taken)}."
        )
    return lines
