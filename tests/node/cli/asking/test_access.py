"""Commands call nodes of a fleet with an authority: real TLS, certificates and state files."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import kakeya
from kakeya_fleet.node.cli.asking.access import Callers, client_of
from kakeya_fleet.node.cli.fleet.dashboard_access import told_access
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.trust.certificates import name_of_node
from kakeya_fleet.node.trust.tls import server_credentials
from kakeya_fleet.node.trust.trust import Trust
from tests.support import scripted_node as scripted
from tests.support.trusted_nodes import fleet_of, renew


@dataclass
class Home:
    """Two nodes of one fleet; the state of the first one lies here, the other's elsewhere."""

    state: Path
    own: Trust
    node: scripted.ScriptedNode
    other: scripted.ScriptedNode


def announce(state: Path, address: str, **facts: object) -> None:
    """An agent of this machine, as its state directory tells."""
    known = {"name": state.name, "address": address, "pid": os.getpid()}
    state.mkdir(parents=True, exist_ok=True)
    (state / "agent.json").write_text(json.dumps(known | facts))


@pytest.fixture
async def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Home]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KAKEYA_STATE", raising=False)
    own, other = fleet_of(tmp_path / "kakeya", 2)
    (tmp_path / "kakeya" / "1").rename(tmp_path / "elsewhere")
    nodes = [
        scripted.ScriptedNode("mini-1", own.node_id),
        scripted.ScriptedNode("mini-2", other.node_id),
    ]
    for node, trust in zip(nodes, (own, other), strict=True):
        await node.start(server_credentials(trust))
    scripted.join(*nodes)
    announce(tmp_path / "kakeya" / "0", nodes[0].address)
    yield Home(tmp_path / "kakeya" / "0", own, *nodes)
    for node in nodes:
        await node.stop()


async def fleet(*words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kakeya_fleet.node.cli", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_its_own_node_hears_the_owner_and_the_others_a_member(home: Home) -> None:
    async with client_of(home.node.address) as client:
        assert (await client.fleet.node()).card.name == "mini-1"
    async with client_of(home.other.address) as client:
        assert (await client.fleet.node()).card.name == "mini-2"
    assert home.node.authorizations == [f"Bearer {home.own.files.owner_key()}"]
    assert home.other.authorizations == [""]


async def test_commands_reach_nodes_here_by_default_and_others_by_name(home: Home) -> None:
    # What the node that is asked tells of itself, and of the other one.
    code, out, err = await fleet("status", "--json")
    assert (code, err) == (0, "")
    assert home.other.requests["GetNode"]
    code, out, err = await fleet("limits", "--json", "--node", "mini-2")
    assert (code, err) == (0, ""), out
    assert set(home.other.authorizations) == {""}


async def test_a_renewed_certificate_counts_for_the_next_connection(home: Home) -> None:
    callers = Callers()
    renew(home.own, home.own)
    async with callers.client(home.other.address) as client:
        assert await client.fleet.nodes()


async def test_the_port_for_this_machine_is_called_in_plain_text_by_the_owner(home: Home) -> None:
    node = scripted.ScriptedNode("mini-1", home.own.node_id)
    await node.start()
    announce(home.state, home.node.address, local_address=node.address)
    async with client_of(node.address) as client:
        await client.fleet.node()
    await node.stop()
    assert node.authorizations == [f"Bearer {home.own.files.owner_key()}"]


async def test_a_fleet_without_an_authority_is_called_in_plain_text(
    home: Home, tmp_path: Path
) -> None:
    node = scripted.ScriptedNode("plain", "cc")
    await node.start()
    announce(tmp_path / "kakeya" / "plain", node.address)
    async with client_of(node.address) as client:
        await client.fleet.node()
    await node.stop()
    assert node.authorizations == [""]


async def test_who_is_no_member_is_told_what_can_be_wrong(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stranger,) = fleet_of(tmp_path / "other" / "kakeya", 1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    code, _, err = await fleet("status", "--node", home.node.address)
    assert code == 3
    assert "takes the other's certificate for none" in err
    assert not home.node.requests
    assert stranger.fleet.fleet_id != home.own.fleet.fleet_id


def test_keys_that_others_can_read_are_refused(tmp_path: Path) -> None:
    (own,) = fleet_of(tmp_path / "kakeya", 1)
    own.files.member_file.chmod(0o644)
    announce(tmp_path / "kakeya" / "0", "127.0.0.1:1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path))
        patch.delenv("KAKEYA_STATE", raising=False)
        with pytest.raises(CommandFailed) as caught:
            Callers().access("127.0.0.1:1")
    assert caught.value.reason == "STATE_EXPOSED"


async def test_the_dashboard_is_told_what_it_needs_and_no_more(home: Home) -> None:
    told = json.loads(json.dumps(told_access("")))
    assert set(told["nodes"]) == {home.node.address}
    node = told["nodes"][home.node.address]
    assert node["ownerKey"] == home.own.files.owner_key()
    assert node["ownerName"] == name_of_node(home.own.node_id)
    tls = told["memberships"][node["membership"]]
    assert tls["serverName"] == "member.kakeya"
    assert home.own.member.key_pem.decode() in tls["key"]
    assert told["named"] == ""
    named = told_access(home.other.address)
    assert named["named"] == node["membership"]
    renew(home.own, home.own)
    assert told_access("") != told


def test_certificates_cost_a_fleet_without_them_nothing(tmp_path: Path) -> None:
    announce(tmp_path / "kakeya" / "plain", "127.0.0.1:1")
    code = (
        "import sys\n"
        "from kakeya_fleet.node.cli.asking.access import Callers\n"
        "Callers().access('127.0.0.1:1')\n"
        "print('cryptography' in sys.modules)"
    )
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    environment.pop("KAKEYA_STATE", None)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "False"


async def test_a_stranger_gets_no_answer(home: Home) -> None:
    async with kakeya.AsyncClient(home.node.address) as client:
        with pytest.raises(kakeya.NodeUnreachable):
            await client.fleet.node()
