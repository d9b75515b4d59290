"""Which processes make a group's ranks, by what carries its tensors and where its hosts are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from kakeya_fleet.engine.group.fields import Header, Json
from kakeya_fleet.fleet.hostfiles.hostfile import GroupBackend, Hostfile, hostfile_text
from kakeya_fleet.node.roles.groups.group_settings import GroupSettings, is_here
from kakeya_fleet.node.roles.groups.launching import Launch, rank_command
from kakeya_fleet.node.roles.groups.rank_environment import NONCE, RANK, RankEnvironment
from kakeya_fleet.node.roles.groups.remote_launching import by_mlx, over_ssh


def launches(settings: GroupSettings, held: ExitStack, nonce: bytes, port: int) -> Iterator[Launch]:
    """The processes to start; the leader listens at `port` of `settings.leader_host`.

    Files that they read are there for as long as `held` is open. mlx.launch starts what
    only it can: rings with ranks on other hosts, and jaccl.
    """
    hosts = settings.hostfile.hosts
    folder = Path.cwd()
    first = RankEnvironment(
        nonce=nonce,
        host=settings.leader_host,
        port=port,
        rank=0,
        size=len(hosts),
        port_count=max(1, len(hosts[0].ips)),
        parent=None,
    )
    if settings.carrier.uses_mlx and not _starts_itself(settings):
        variables = first.variables() | {NONCE: nonce.hex()}
        del variables[RANK]
        scratch = held.enter_context(TemporaryDirectory(prefix="kakeya-group-"))
        hostfile = Path(scratch) / "hosts.json"
        hostfile.write_text(hostfile_text(_known_as_local(settings.hostfile)), "utf-8")
        yield by_mlx(hostfile, settings.carrier.value, variables, folder)
        return
    for rank, host in enumerate(hosts):
        own = replace(first, rank=rank)
        if is_here(host):
            own = replace(own, parent=os.getpid())
            variables = settings.hostfile.environment | own.variables() | {NONCE: nonce.hex()}
            yield Launch(f"rank {rank}", rank_command(), variables)
        else:
            variables = settings.hostfile.environment | own.variables()
            yield over_ssh(rank, host, variables, nonce, folder)


def joining(settings: GroupSettings, ports: list[list[int]], rank: int) -> Header:
    """What `rank` is told to join the others with; `ports[i]` are free ones on rank i's host."""
    hosts = settings.hostfile.hosts
    own = hosts[rank]
    address = own.ips[0] if own.ips else own.ssh.rpartition("@")[2]
    variables: dict[str, Json] = {}
    ring: list[Json] = []
    if settings.carrier is GroupBackend.GLOO:
        variables = {
            "MASTER_ADDR": hosts[0].ips[0],
            "MASTER_PORT": str(ports[0][0]),
            "RANK": str(rank),
            "WORLD_SIZE": str(len(hosts)),
        }
    elif _starts_itself(settings):
        variables = {"MLX_RANK": str(rank)}
        ring = [
            [f"{ip}:{port}" for ip, port in zip(host.ips, own_ports, strict=True)]
            for host, own_ports in zip(hosts, ports, strict=True)
        ]
    return {
        "model": settings.model,
        "backend": settings.backend,
        "dtype": settings.dtype,
        "address": address,
        "environment": variables,
        "ring": ring,
    }


def _known_as_local(hostfile: Hostfile) -> Hostfile:
    """With the one name of this host that mlx.launch does not connect to by ssh."""
    hosts = tuple(
        replace(host, ssh="127.0.0.1") if is_here(host) else host for host in hostfile.hosts
    )
    return replace(hostfile, hosts=hosts)


def _starts_itself(settings: GroupSettings) -> bool:
    """Whether this node starts a ring of MLX by itself."""
    return settings.carrier is GroupBackend.RING and settings.is_local
