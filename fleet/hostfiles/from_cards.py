"""A hostfile from what the fleet's cards say."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kakeya_fleet.fleet.cards.address import parse_address
from kakeya_fleet.fleet.hostfiles.hostfile import (
    GroupBackend,
    Host,
    Hostfile,
    HostfileError,
    hostfile_text,
    is_ipv6,
    parse_hostfile,
)

LOCAL = "127.0.0.1"
"""What `mlx.launch` starts without ssh."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node as far as a hostfile needs it.

    `liveness` is "alive" or another word for people; `address` and `ring_address` are
    host:port, empty when the card has none.
    """

    node_id: str
    name: str
    liveness: str
    address: str
    ring_address: str


@dataclass(frozen=True, slots=True)
class HostfileRequest:
    """What is asked for.

    `nodes` are names, or the starts of ids, in the order of their ranks; empty for all
    live nodes with a ring address, by name. `rdma` has the devices of jaccl by
    (node's name, other's name).
    """

    backend: GroupBackend = GroupBackend.RING
    nodes: tuple[str, ...] = ()
    ranks_per_node: int = 1
    ssh_user: str = ""
    envs: tuple[str, ...] = ()
    rdma: Mapping[tuple[str, str], str] = field(default_factory=dict)


def chosen_members(members: Sequence[Member], nodes: Sequence[str]) -> tuple[Member, ...]:
    """The nodes that a request means, in the order of their ranks. Raises `HostfileError`."""
    if not nodes:
        found = sorted(
            (one for one in members if one.liveness == "alive" and one.ring_address),
            key=lambda one: (one.name, one.node_id),
        )
        if not found:
            raise HostfileError(
                "", "no live node advertises a ring address: name the nodes with --nodes A,B"
            )
        return tuple(found)
    chosen = tuple(_called(members, wanted) for wanted in nodes)
    for index, member in enumerate(chosen):
        if member in chosen[:index]:
            raise HostfileError(
                member.name, "the node is named twice: for several ranks use --ranks-per-node"
            )
    return chosen


def make_hostfile(members: Sequence[Member], request: HostfileRequest) -> Hostfile:
    """The hostfile of the nodes that a request means. Raises `HostfileError`.

    Its `where` names the node, when a node cannot take part: dead, without an address,
    or with one that the others do not reach.
    """
    chosen = chosen_members(members, request.nodes)
    _check_count(chosen, request)
    for member in chosen:
        _check_member(member, request.backend)
    _check_loopback(chosen)
    hosts = [
        Host(
            ssh=_ssh(member, request.ssh_user),
            ips=(_group_host(member, request.backend),),
            rdma=_devices(member, chosen, request) if request.backend.uses_rdma else (),
        )
        for member in chosen
        for _ in range(request.ranks_per_node)
    ]
    hostfile = Hostfile(tuple(hosts), request.backend, request.envs)
    # What it would refuse in a file, a user of ssh among it, is refused here.
    return parse_hostfile(hostfile_text(hostfile))


def _called(members: Sequence[Member], wanted: str) -> Member:
    exact = [one for one in members if wanted in (one.name, one.node_id)]
    found = exact or [one for one in members if wanted and one.node_id.startswith(wanted)]
    if not found:
        names = ", ".join(sorted(one.name for one in members)) or "none"
        raise HostfileError(wanted, f"no node is called that; there are: {names}")
    if len(found) > 1:
        ids = ", ".join(sorted(one.node_id[:12] for one in found))
        raise HostfileError(
            wanted, f"several nodes are called that; give the start of an id: {ids}"
        )
    return found[0]


def _check_count(chosen: Sequence[Member], request: HostfileRequest) -> None:
    if request.ranks_per_node < 1:
        raise HostfileError("", f"{request.ranks_per_node} ranks a node are none")
    if request.backend.uses_rdma and request.ranks_per_node > 1:
        raise HostfileError(
            "",
            f"{request.backend.value} connects machines: it takes one rank a node, ring takes more",
        )
    if len(chosen) * request.ranks_per_node < 2:
        raise HostfileError(
            chosen[0].name, "one rank is no group: name another node, or use --ranks-per-node 2"
        )


def _check_member(member: Member, backend: GroupBackend) -> None:
    if member.liveness != "alive":
        raise HostfileError(
            member.name,
            f"the node is {member.liveness}: start it with `fleet join`, or leave it out",
        )
    if not member.address:
        raise HostfileError(
            member.name, "no address of the node is known: wait until its card is, or leave it out"
        )
    if backend is GroupBackend.RING and not member.ring_address:
        raise HostfileError(
            member.name,
            "the node advertises no ring address: install kakeya-fleet[mlx] there and start it "
            "again, or leave it out",
        )
    host = _group_host(member, backend)
    if backend.uses_mlx and is_ipv6(host):
        raise HostfileError(
            member.name,
            f"mlx takes no IPv6 address such as {host}: start the node with --bind and an IPv4 one",
        )


def _check_loopback(chosen: Sequence[Member]) -> None:
    """Nodes of one machine may all be there; beside others one there is not reached."""
    local = [one for one in chosen if _is_loopback(parse_address(one.address)[0])]
    if local and len(local) < len(chosen):
        raise HostfileError(
            local[0].name,
            "the node answers on its own machine only: start it with --bind and an address that "
            "the others reach, and --insecure",
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _group_host(member: Member, backend: GroupBackend) -> str:
    """Where the others reach its ranks; the address of the ring, as far as there is one."""
    at = member.ring_address if backend.uses_mlx else ""
    return parse_address(at or member.address)[0]


def _ssh(member: Member, user: str) -> str:
    host = parse_address(member.address)[0]
    if _is_loopback(host):
        return LOCAL
    return f"{user}@{host}" if user else host


def _devices(
    member: Member, chosen: Sequence[Member], request: HostfileRequest
) -> tuple[tuple[str, ...], ...]:
    """The member's devices towards each node, none towards itself and, in a ring, the far ones."""
    rank, count = chosen.index(member), len(chosen)
    devices: list[tuple[str, ...]] = []
    for peer, other in enumerate(chosen):
        device = request.rdma.get((member.name, other.name), "")
        is_neighbour = (peer - rank) % count in (1, count - 1)
        is_needed = peer != rank and (request.backend is GroupBackend.JACCL or is_neighbour)
        if is_needed and not device:
            raise HostfileError(
                member.name,
                f"no device towards {other.name}: add --rdma {member.name}:{other.name}=DEVICE; "
                "`ibv_devices` lists them there",
            )
        devices.append((device,) if is_needed else ())
    return tuple(devices)
