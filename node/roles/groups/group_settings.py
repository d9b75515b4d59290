"""What a group is started from: its hostfile, and where this node is among the hosts."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from kakeya_fleet.fleet.hostfiles.hostfile import (
    GroupBackend,
    Host,
    Hostfile,
    HostfileError,
    parse_hostfile,
)
from kakeya_fleet.node.config.backoff import Backoff
from kakeya_fleet.node.config.config import is_loopback
from kakeya_fleet.node.errors import BadGroup

PULSE_SECONDS = 0.25
"""How often a rank says that it runs."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """How long a group's leader waits for what."""

    start_seconds: float = 600.0
    """From the start of the processes until every rank is ready."""

    silence_seconds: float = 10.0
    """A rank whose pulse is silent for so long is lost."""

    loading_silence_seconds: float = 60.0
    """The same of a rank that loads, if longer: it may keep its interpreter to itself."""

    answer_seconds: float = 120.0
    """A rank that takes so long over a command is lost."""

    proof_seconds: float = 2.0
    """What a stranger may hold up the others."""

    message_seconds: float = 5.0
    """From the first byte of a small message to its last."""

    look_seconds: float = 0.1
    """How often it is looked for processes that ended."""

    end_seconds: float = 0.5
    """From the end of a process's connections to that of the process."""

    again: Backoff = Backoff(1.0, 60.0)
    """A group that was lost is started again after these pauses."""

    steady_seconds: float = 60.0
    """A group that lived for so long is started again after the first pause."""

    @property
    def loading_seconds(self) -> float:
        """The longest silence of a rank that is not ready yet."""
        return max(self.silence_seconds, self.loading_silence_seconds)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A group that serves `model`, as `engine.models.model_folder` names it on every host.

    `host` is the address at which this node is reached.
    """

    hostfile: Hostfile
    model: str
    dtype: str = "auto"
    host: str = "127.0.0.1"
    limits: GroupLimits = field(default_factory=GroupLimits)

    @property
    def backend(self) -> str:
        """The back end that computes: what carries the tensors decides it."""
        return "mlx" if self.carrier.uses_mlx else "torch"

    @property
    def carrier(self) -> GroupBackend:
        """What carries the tensors; `read_group` checked that there is one."""
        return self.hostfile.backend or GroupBackend.GLOO

    @property
    def is_local(self) -> bool:
        """Whether every rank runs on this host."""
        return all(is_here(host) for host in self.hostfile.hosts)

    @property
    def leader_host(self) -> str:
        """The address at which the ranks reach this node. Raises `BadGroup`."""
        if self.is_local:
            return "127.0.0.1"
        if not _is_wildcard(self.host):
            return self.host
        own = [ip for host in self.hostfile.hosts if is_here(host) for ip in host.ips]
        if not own:
            raise BadGroup(
                f"ranks on other hosts do not know where {self.host} is",
                "bind one address with --bind, or let one rank of the hostfile run here",
            )
        return own[0]


@dataclass(frozen=True, slots=True)
class GroupSource:
    """A hostfile on this node, and how groups of it are run."""

    path: Path
    host: str = "127.0.0.1"
    limits: GroupLimits = field(default_factory=GroupLimits)

    def settings(
        self, model: str, *, dtype: str, backend: str, within_host: bool = False
    ) -> GroupSettings:
        """The group that serves `model`. `backend` is "auto" or what must compute it.

        With `within_host` its tensors, which are not encrypted, may not leave this host.
        Raises `BadGroup`, and `HostfileError` with the place of a mistake.
        """
        settings = GroupSettings(
            hostfile=read_hostfile(self.path),
            model=model,
            dtype=dtype,
            host=self.host,
            limits=self.limits,
        )
        if backend not in ("auto", settings.backend):
            raise BadGroup(
                f"{self.path} is for {settings.backend} ({settings.carrier.value}), and the back"
                f" end is {backend}",
                f"leave out --backend, or give --backend {settings.backend}",
                path=str(self.path),
            )
        if within_host and not settings.is_local:
            raise BadGroup(
                f"{self.path} has ranks on other hosts, and tensors of a group travel in the clear",
                "start with --trusted-network if nobody listens on the network between them, or"
                " give a hostfile of this host alone",
                path=str(self.path),
            )
        if not settings.is_local and is_loopback(self.host):
            raise BadGroup(
                f"{self.path} has ranks on other hosts, which do not reach {self.host}",
                "bind an address of this host that they reach: --bind ADDRESS:PORT --insecure",
                path=str(self.path),
            )
        return settings


def read_hostfile(path: Path) -> Hostfile:
    """The hostfile at `path`, with a backend and two ranks at least.

    Raises `BadGroup`, and `HostfileError` with the place of a mistake.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadGroup(
            f"the hostfile {path} cannot be read ({error})",
            "name another one with --group; `fleet hostfile` writes one",
            path=str(path),
        ) from error
    try:
        hostfile = parse_hostfile(text)
    except HostfileError as error:
        raise HostfileError(str(path), str(error)) from error
    if hostfile.backend is None:
        raise BadGroup(
            f"the hostfile {path} names no backend",
            'write {"backend": "gloo", "hosts": [...]} for torch, "ring" or "jaccl" for MLX',
            path=str(path),
        )
    if hostfile.rank_count == 1:
        raise BadGroup(
            f"the hostfile {path} has one rank", "leave out --group, or add a host", path=str(path)
        )
    return hostfile


def is_here(host: Host) -> bool:
    """Whether `host` is this host: by its name, or by an address of an interface."""
    name = host.ssh.rpartition("@")[2]
    if is_loopback(name) or name in (socket.gethostname(), socket.getfqdn()):
        return True
    own = {address.address for found in psutil.net_if_addrs().values() for address in found}
    return name in own


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
