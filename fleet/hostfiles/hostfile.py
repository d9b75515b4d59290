"""Hostfiles: which ranks form a group, and where each of them runs.

The format is that of `mlx.launch --hostfile`: an object, or the plain list of its
hosts. One entry is one rank, so that a host with two ranks stands there twice:

    {"backend": "ring", "envs": ["NAME=value"],
     "hosts": [{"ssh": "mini-1", "ips": ["192.168.1.20"]}, ...]}

`jaccl` (RDMA over Thunderbolt) takes for each rank its devices towards every rank,
null towards itself: `"rdma": [null, "rdma_en2"]`. `gloo` is a group of
torch.distributed; `mlx.launch` does not start it, `fleet join --group` does.
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from kakeya_fleet.fleet.cards.address import MAX_HOST_CHARACTERS
from kakeya_fleet.fleet.errors import FleetError

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

MAX_RANKS = 64
MAX_HOSTFILE_CHARACTERS = 1 << 20

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_DEVICE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class GroupBackend(StrEnum):
    """What carries the tensors between the ranks."""

    RING = "ring"
    JACCL = "jaccl"
    JACCL_RING = "jaccl-ring"
    GLOO = "gloo"

    @property
    def uses_rdma(self) -> bool:
        """Whether every rank must name its devices towards the others."""
        return self in (GroupBackend.JACCL, GroupBackend.JACCL_RING)

    @property
    def uses_mlx(self) -> bool:
        """Whether mlx.distributed forms the group, not torch.distributed."""
        return self is not GroupBackend.GLOO


@dataclass(frozen=True, slots=True)
class Host:
    """Where one rank runs.

    `ssh` is what ssh is given, `ips` are the addresses at which the others reach
    the rank, best first: IPv4, IPv6 (gloo only) or names. `rdma` has for every
    rank the devices towards it, empty towards itself; empty without RDMA.
    """

    ssh: str
    ips: tuple[str, ...] = ()
    rdma: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Hostfile:
    """The ranks of a group, rank 0 first.

    `backend` is None when the file names none. `envs` are NAME=value, set for every
    rank.
    """

    hosts: tuple[Host, ...]
    backend: GroupBackend | None = None
    envs: tuple[str, ...] = ()

    @property
    def rank_count(self) -> int:
        """Ranks of the group."""
        return len(self.hosts)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of `envs`; of two with one name the later."""
        return {name: value for name, _, value in (env.partition("=") for env in self.envs)}


class HostfileError(FleetError):
    """A hostfile cannot be used.

    `where` is the place of the mistake: "line 3, column 7" when the text is no
    JSON, else the key, such as "hosts[1].ips[0]"; "" for the whole.
    """

    reason = "BAD_HOSTFILE"

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}" if where else problem, where=where)
        self.where = where


def parse_hostfile(text: str) -> Hostfile:
    """The hostfile of a JSON text. Raises `HostfileError`."""
    data = _json(text)
    envs: tuple[str, ...] = ()
    if isinstance(data, list):
        hosts, backend, at = data, None, ""
    elif isinstance(data, dict):
        _only(data, ("backend", "envs", "hosts"), "")
        if "hosts" not in data:
            raise HostfileError("hosts", "the key is missing")
        hosts = _list(data["hosts"], "hosts")
        backend = _backend(data.get("backend"))
        envs = tuple(_env(env, f"envs[{i}]") for i, env in _items(data.get("envs", []), "envs"))
        at = "hosts"
    else:
        raise HostfileError("", "a hostfile is an object with hosts, or a list of hosts")
    hostfile = Hostfile(
        tuple(_host(host, f"{at}[{index}]") for index, host in enumerate(hosts)), backend, envs
    )
    check_hostfile(hostfile, at=at)
    return hostfile


def hostfile_text(hostfile: Hostfile) -> str:
    """The text of a hostfile, one rank a line; `parse_hostfile` gives the same value back.

    Without a backend and without variables it is the plain list of hosts.
    """
    lines = [json.dumps(_host_json(host)) for host in hostfile.hosts]
    if hostfile.backend is None and not hostfile.envs:
        return "[\n  " + ",\n  ".join(lines) + "\n]\n"
    head = f'  "backend": {json.dumps(hostfile.backend.value)},\n' if hostfile.backend else ""
    envs = json.dumps(list(hostfile.envs))
    hosts = ",\n    ".join(lines)
    return f'{{\n{head}  "envs": {envs},\n  "hosts": [\n    {hosts}\n  ]\n}}\n'


def check_hostfile(hostfile: Hostfile, *, at: str = "hosts") -> None:
    """What the backend needs of the ranks. Raises `HostfileError`; `at` is the hosts' key.

    The ring and jaccl take no IPv6 (mlx splits an address at its first colon), the
    ring as many addresses of every rank, jaccl a device for each pair of ranks
    (jaccl-ring: of neighbours), jaccl and gloo an address of rank 0 at least.
    """
    if not hostfile.hosts:
        raise HostfileError(at, "there is no host")
    if len(hostfile.hosts) > MAX_RANKS:
        raise HostfileError(at, f"{len(hostfile.hosts)} ranks are more than {MAX_RANKS}")
    backend = hostfile.backend
    if backend is not None and backend.uses_mlx:
        _refuse_ipv6(hostfile.hosts, at)
    if backend is GroupBackend.RING:
        _check_ring(hostfile.hosts, at)
    elif backend is not None and not hostfile.hosts[0].ips:
        raise HostfileError(f"{at}[0].ips", "rank 0 needs an address that all others reach")
    if backend is not None and backend.uses_rdma:
        _check_rdma(hostfile.hosts, at, is_ring=backend is GroupBackend.JACCL_RING)


def is_ipv6(address: str) -> bool:
    """Whether the address of a host is an IPv6 address."""
    return ":" in address


def _refuse_ipv6(hosts: tuple[Host, ...], at: str) -> None:
    for rank, host in enumerate(hosts):
        for index, address in enumerate(host.ips):
            if is_ipv6(address):
                raise HostfileError(
                    f"{at}[{rank}].ips[{index}]", f"mlx takes no IPv6 address such as {address}"
                )


def _check_ring(hosts: tuple[Host, ...], at: str) -> None:
    for rank, host in enumerate(hosts):
        if not host.ips:
            raise HostfileError(f"{at}[{rank}].ips", "a ring needs an address of every rank")
        if len(host.ips) != len(hosts[0].ips):
            raise HostfileError(
                f"{at}[{rank}].ips",
                f"{len(host.ips)} addresses, but rank 0 has {len(hosts[0].ips)}: "
                "a ring needs as many of every rank",
            )


def _check_rdma(hosts: tuple[Host, ...], at: str, *, is_ring: bool) -> None:
    count = len(hosts)
    for rank, host in enumerate(hosts):
        key = f"{at}[{rank}].rdma"
        if len(host.rdma) != count:
            raise HostfileError(key, f"{len(host.rdma)} entries for {count} ranks")
        if host.rdma[rank]:
            raise HostfileError(f"{key}[{rank}]", "the entry of the rank itself must be null")
        neighbours = ((rank - 1) % count, (rank + 1) % count)
        for peer in sorted(set(neighbours)) if is_ring else range(count):
            if peer != rank and not host.rdma[peer]:
                raise HostfileError(f"{key}[{peer}]", f"no device towards rank {peer}")


def _json(text: str) -> Json:
    if len(text) > MAX_HOSTFILE_CHARACTERS:
        raise HostfileError("", f"more than {MAX_HOSTFILE_CHARACTERS} characters")
    try:
        data: Json = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise HostfileError(where, f"no JSON: {error.msg}") from error
    except ValueError as error:
        # Python reads no integer of more than some thousand digits.
        raise HostfileError("", f"no JSON: {error}") from error
    except RecursionError as error:
        raise HostfileError("", "the JSON is nested too deeply") from error
    return data


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    entries: dict[str, Json] = {}
    for key, value in pairs:
        if key in entries:
            raise HostfileError(key, "the key is there twice in one object")
        entries[key] = value
    return entries


def _no_constant(name: str) -> Json:
    raise HostfileError("", f"{name} is no JSON")


def _host(data: Json, where: str) -> Host:
    if not isinstance(data, dict):
        raise HostfileError(where, 'a host is an object such as {"ssh": "mini-1", "ips": []}')
    _only(data, ("ssh", "ips", "rdma"), where)
    if "ssh" not in data:
        raise HostfileError(f"{where}.ssh", "the key is missing")
    return Host(
        ssh=_ssh(data["ssh"], f"{where}.ssh"),
        ips=tuple(
            _address(ip, f"{where}.ips[{i}]")
            for i, ip in _items(data.get("ips", []), f"{where}.ips")
        ),
        rdma=tuple(
            _devices(entry, f"{where}.rdma[{i}]")
            for i, entry in _items(data.get("rdma", []), f"{where}.rdma")
        ),
    )


def _backend(data: Json) -> GroupBackend | None:
    if data is None or data == "":
        return None
    known = [backend.value for backend in GroupBackend]
    if not isinstance(data, str) or data not in known:
        raise HostfileError("backend", f"{_shown(data)} is none of {', '.join(known)}")
    return GroupBackend(data)


def _env(data: Json, where: str) -> str:
    if not isinstance(data, str) or not _VARIABLE.fullmatch(data) or "\0" in data:
        raise HostfileError(where, f"{_shown(data)} is not NAME=value")
    return data


def _ssh(data: Json, where: str) -> str:
    """A host, or USER@HOST. Nothing that ssh would take for an option."""
    text = data if isinstance(data, str) else ""
    user, has_user, host = text.rpartition("@")
    if not _is_host(host) or (has_user and not _USER.fullmatch(user)):
        raise HostfileError(where, f"{_shown(data)} is no host and no USER@HOST")
    return text


def _address(data: Json, where: str) -> str:
    if not isinstance(data, str) or not _is_host(data):
        raise HostfileError(where, f"{_shown(data)} is no address and no host name")
    return data


def _is_host(text: str) -> bool:
    if len(text) > MAX_HOST_CHARACTERS:
        return False
    if not is_ipv6(text):
        return _NAME.fullmatch(text) is not None
    try:
        return bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False


def _devices(data: Json, where: str) -> tuple[str, ...]:
    if data is None:
        return ()
    names = data if isinstance(data, list) else [data]
    for name in names:
        if not isinstance(name, str) or not _DEVICE.fullmatch(name):
            raise HostfileError(where, f"{_shown(name)} is no device; null towards itself")
    return tuple(str(name) for name in names)


def _list(data: Json, where: str) -> list[Json]:
    if not isinstance(data, list):
        raise HostfileError(where, f"{_shown(data)} is no list")
    return data


def _items(data: Json, where: str) -> list[tuple[int, Json]]:
    return list(enumerate(_list(data, where)))


def _only(data: dict[str, Json], known: tuple[str, ...], where: str) -> None:
    for key in data:
        if key not in known:
            at = f"{where}.{key}" if where else key
            raise HostfileError(at, f"the key is none of {', '.join(known)}")


def _shown(data: Json) -> str:
    text = json.dumps(data)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _host_json(host: Host) -> dict[str, Json]:
    entry: dict[str, Json] = {"ssh": host.ssh, "ips": list(host.ips)}
    if host.rdma:
        entry["rdma"] = [_devices_json(devices) for devices in host.rdma]
    return entry


def _devices_json(devices: tuple[str, ...]) -> Json:
    if not devices:
        return None
    return devices[0] if len(devices) == 1 else list(devices)
