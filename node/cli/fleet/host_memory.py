"""Memory and cores of the machines of a fleet: in use now, of a machine with several nodes once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kakeya import Liveness, NodeStatus
from kakeya_fleet.node.cli.terminal.quantities import bytes_text, share_of_bytes_text


@dataclass(frozen=True, slots=True)
class HostMemory:
    """One machine; `free_bytes` is None when none of its nodes told it.

    `nodes` are (node id, name) of those that live on it, in the order of the fleet.
    `cpu_share` is what is busy of its cores, 0 to 1; None when none of its nodes told it.
    """

    nodes: tuple[tuple[str, str], ...]
    total_bytes: int
    free_bytes: int | None
    cpu_share: float | None = None

    @property
    def used_bytes(self) -> int | None:
        """What is in use; None when it was not told."""
        return None if self.free_bytes is None else max(0, self.total_bytes - self.free_bytes)


def hosts_of(
    nodes: Iterable[NodeStatus],
    free_bytes: Mapping[str, int],
    cpu_shares: Mapping[str, float] = MappingProxyType({}),
) -> list[HostMemory]:
    """The machines of the nodes that are alive.

    `free_bytes` and `cpu_shares` are what nodes told just now, by node id. A node that
    does not name its machine counts as one.
    """
    found: dict[str, list[NodeStatus]] = {}
    for node in nodes:
        if node.liveness is Liveness.ALIVE and node.card and node.card.memory_total_bytes:
            found.setdefault(node.card.host_id or node.node_id, []).append(node)
    return [_host(here, free_bytes, cpu_shares) for here in found.values()]


def _host(
    nodes: list[NodeStatus], free_bytes: Mapping[str, int], cpu_shares: Mapping[str, float]
) -> HostMemory:
    told = [free_bytes[node.node_id] for node in nodes if node.node_id in free_bytes]
    return HostMemory(
        nodes=tuple((node.node_id, node.name) for node in nodes),
        total_bytes=max(node.card.memory_total_bytes for node in nodes if node.card),
        free_bytes=min(told) if told else None,
        # They look at different moments, and maybe at some of the cores each.
        cpu_share=max(
            (cpu_shares[node.node_id] for node in nodes if node.node_id in cpu_shares), default=None
        ),
    )


def host_text(host: HostMemory, node_id: str) -> str:
    """`13.2 / 64.0 GiB`, `? / 64.0 GiB`; for its further nodes `with mini-1`."""
    first_id, first_name = host.nodes[0]
    if node_id != first_id:
        return f"with {first_name}"
    if host.used_bytes is None:
        return f"? / {bytes_text(host.total_bytes)}"
    return share_of_bytes_text(host.used_bytes, host.total_bytes)


def total_text(hosts: Iterable[HostMemory]) -> str:
    """`13.2 / 64.0 GiB in use on 2 machines`; empty when nothing was told."""
    told = [host for host in hosts if host.used_bytes is not None]
    if not told:
        return ""
    used = sum(host.used_bytes or 0 for host in told)
    total = sum(host.total_bytes for host in told)
    machines = "1 machine" if len(told) == 1 else f"{len(told)} machines"
    return f"{share_of_bytes_text(used, total)} in use on {machines}"
