"""Which command lines make a group, here and on other hosts; those of others are not run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kakeya_fleet.fleet.hostfiles.hostfile import parse_hostfile
from kakeya_fleet.node.errors import BadGroup
from kakeya_fleet.node.roles.groups.group_settings import GroupSettings, GroupSource
from kakeya_fleet.node.roles.groups.launching import Launch
from kakeya_fleet.node.roles.groups.rank_starting import joining, launches

NONCE = b"n" * 32
HERE = {"ssh": "localhost", "ips": ["127.0.0.1"]}
THERE = {"ssh": "me@mini-2", "ips": ["10.1.1.2"]}


def settings(
    backend: str, *hosts: dict[str, Any], host: str = "10.1.1.1", **other: Any
) -> GroupSettings:
    text = json.dumps({"backend": backend, "envs": ["A=b c"], "hosts": list(hosts), **other})
    return GroupSettings(parse_hostfile(text), "org/model", host=host)


def started(found: GroupSettings) -> list[Launch]:
    with ExitStack() as held:
        return list(launches(found, held, NONCE, 7000))


def test_ranks_of_this_host_are_started_directly() -> None:
    found = settings("gloo", HERE, HERE)
    zero, one = started(found)
    module = "kakeya_fleet.node.roles.groups.rank_process"
    assert zero.command == [sys.executable, "-P", "-m", module]
    assert [each.variables["KAKEYA_GROUP_RANK"] for each in (zero, one)] == ["0", "1"]
    assert one.variables["KAKEYA_GROUP_LEADER"] == "127.0.0.1:7000"
    assert one.variables["KAKEYA_GROUP_PARENT"] == str(os.getpid())
    assert one.variables["A"] == "b c"
    told = joining(found, [[20001], [20002]], 1)
    assert told["environment"] == {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "20001",
        "RANK": "1",
        "WORLD_SIZE": "2",
    }
    assert told["ring"] == []


def test_a_rank_elsewhere_is_started_by_ssh_and_hears_the_nonce_from_its_input(
    tmp_path: Path,
) -> None:
    found = settings("gloo", {"ssh": "localhost", "ips": ["10.1.1.1"]}, THERE)
    _, there = started(found)
    assert there.command[0] == "ssh"
    assert there.command[-3:-1] == ["--", "me@mini-2"]
    assert NONCE.hex() not in " ".join([*there.command, *there.variables.values()])
    script = there.command[-1]
    # What ssh would let the other host's shell do, with a program that shows what it was given.
    shown = tmp_path / "python"
    shown.write_text("#!/bin/sh\nenv\n")
    shown.chmod(0o755)
    script = script.replace(sys.executable, str(shown)).replace(str(Path.cwd()), str(tmp_path))
    ran = subprocess.run(
        ["sh", "-c", script], input=there.first_input, capture_output=True, check=True, env={}
    )
    lines = ran.stdout.decode().splitlines()
    assert f"KAKEYA_GROUP_NONCE={NONCE.hex()}" in lines
    assert "KAKEYA_GROUP_LEADER=10.1.1.1:7000" in lines
    assert "KAKEYA_GROUP_RANK=1" in lines
    assert "A=b c" in lines
    assert not any(line.startswith("KAKEYA_GROUP_PARENT") for line in lines)


def test_a_ring_of_this_host_is_told_its_addresses() -> None:
    found = settings("ring", HERE, HERE)
    assert len(started(found)) == 2
    told = joining(found, [[20001], [20002]], 1)
    assert told["backend"] == "mlx"
    assert told["environment"] == {"MLX_RANK": "1"}
    assert told["ring"] == [["127.0.0.1:20001"], ["127.0.0.1:20002"]]


def test_mlx_launch_starts_what_only_it_can() -> None:
    found = settings("ring", HERE, THERE)
    with ExitStack() as held:
        (launch,) = launches(found, held, NONCE, 7000)
        path = Path(launch.command[2])
        hostfile = parse_hostfile(path.read_text())
    assert not path.exists()
    # The only name of this host to which it needs no ssh.
    assert [host.ssh for host in hostfile.hosts] == ["127.0.0.1", "me@mini-2"]
    assert Path(launch.command[0]).name == "mlx.launch"
    assert launch.command[1:5] == ["--hostfile", str(path), "--backend", "ring"]
    assert launch.command[-2:] == ["-m", "kakeya_fleet.node.roles.groups.rank_process"]
    told = joining(found, [[20001], [20002]], 1)
    assert (told["environment"], told["ring"]) == ({}, [])
    jaccl = settings(
        "jaccl",
        {**HERE, "rdma": [None, "rdma_en2"]},
        {**HERE, "rdma": ["rdma_en2", None]},
    )
    assert len(started(jaccl)) == 1


def test_ranks_elsewhere_need_an_address_of_this_node() -> None:
    own = {"ssh": "localhost", "ips": ["10.1.1.1"]}
    assert settings("gloo", own, THERE, host="0.0.0.0").leader_host == "10.1.1.1"
    assert settings("gloo", own, THERE).leader_host == "10.1.1.1"
    assert settings("gloo", HERE, HERE, host="0.0.0.0").leader_host == "127.0.0.1"
    with pytest.raises(BadGroup, match="do not know where"):
        _ = settings("gloo", THERE, THERE, host="::").leader_host


def test_an_address_of_ipv6_is_one_variable() -> None:
    found = replace(settings("gloo", {"ssh": "a", "ips": ["fd00::2"]}, THERE), host="fd00::1")
    first, _ = started(found)
    assert "KAKEYA_GROUP_LEADER=fd00::1:7000" in first.command[-1]


def test_in_a_fleet_with_an_authority_ranks_stay_on_this_host(tmp_path: Path) -> None:
    path = tmp_path / "hosts.json"
    source = GroupSource(path, host="10.1.1.1")
    path.write_text(json.dumps({"backend": "gloo", "hosts": [HERE, THERE]}), "utf-8")
    with pytest.raises(BadGroup, match="travel in the clear: start with"):
        source.settings("org/model", dtype="float32", backend="auto", within_host=True)
    assert not source.settings("org/model", dtype="float32", backend="auto").is_local
    path.write_text(json.dumps({"backend": "gloo", "hosts": [HERE, HERE]}), "utf-8")
    found = source.settings("org/model", dtype="float32", backend="auto", within_host=True)
    assert found.is_local
