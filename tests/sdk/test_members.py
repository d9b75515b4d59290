"""Clients of a fleet with an authority: certificates name members, not addresses."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, Owner, Tls
from kakeya_fleet.node.trust.certificates import name_of_node
from kakeya_fleet.node.trust.tls import server_credentials
from kakeya_fleet.node.trust.trust import Trust
from tests.support import scripted_node as scripted
from tests.support.scripted_answers import next_token
from tests.support.trusted_nodes import fleet_of, member_of, old_fleet_of, tls_of

WEEK = 7 * 86400.0


@dataclass
class Home:
    """A fleet of two nodes that members alone can call."""

    folder: Path
    keeper: Trust
    other: Trust
    node: scripted.ScriptedNode
    other_node: scripted.ScriptedNode

    def tls_from(self, began_unix: float) -> Tls:
        """Of a member that was let in then."""
        late = member_of(self.keeper, self.folder, "late", lambda: began_unix)
        return tls_of(self.keeper, late.member)

    @property
    def owner(self) -> Owner:
        return Owner("sesame", name_of_node(self.keeper.node_id))


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    own, other = old_fleet_of(tmp_path / "home", 2)
    nodes = [
        scripted.ScriptedNode("mini-1", own.node_id),
        scripted.ScriptedNode("mini-2", other.node_id),
    ]
    for node, trust in zip(nodes, (own, other), strict=True):
        await node.start(server_credentials(trust))
    scripted.join(*nodes)
    yield Home(tmp_path / "home", own, other, *nodes)
    for node in nodes:
        await node.stop()


async def test_certificates_name_members_and_no_addresses(home: Home) -> None:
    tls = tls_of(home.other)
    async with AsyncClient(home.node.address, tls=tls) as client:
        assert (await client.fleet.node()).card.name == "mini-1"
    async with AsyncClient(home.node.address, tls=replace(tls, server_name=None)) as client:
        with pytest.raises(kakeya.NodeUnreachable):
            await client.fleet.node()


async def test_redirects_and_successors_are_called_in_the_same_way(home: Home) -> None:
    home.node.refuse(
        "CreateSession",
        grpc.StatusCode.FAILED_PRECONDITION,
        reason="MODEL_SERVED_ELSEWHERE",
        metadata={"address": home.other_node.address, "node_id": home.other.node_id},
    )
    tls = tls_of(home.keeper)
    async with AsyncClient(home.node.address, tls=tls, owner=home.owner) as client:
        session = await client.create_session("tiny", resume=True)
        assert session.address == home.other_node.address
        await session.append([1])
        await home.other_node.stop()
        completion = await session.generate(6).collect()
        assert session.address == home.node.address
        assert completion.token_ids == tuple(next_token(each) for each in range(1, 7))
    # The owner's key is the first node's alone.
    assert set(home.node.authorizations) == {"Bearer sesame"}
    assert set(home.other_node.authorizations) == {""}


@pytest.mark.parametrize("node_id", ["that of the keeper", "no id"])
async def test_a_member_in_another_one_s_place_gets_nothing(home: Home, node_id: str) -> None:
    """Whom a redirect names must show that very name: to be a member is not enough."""
    awaited = node_id if node_id == "no id" else home.keeper.node_id
    home.node.refuse(
        "CreateSession",
        grpc.StatusCode.FAILED_PRECONDITION,
        reason="MODEL_SERVED_ELSEWHERE",
        metadata={"address": home.other_node.address, "node_id": awaited},
    )
    async with AsyncClient(home.node.address, tls=tls_of(home.other)) as client:
        with pytest.raises((kakeya.NodeUnreachable, kakeya.UsageError)):
            await client.create_session("tiny")
    assert not home.other_node.requests


async def test_an_owner_s_key_goes_to_no_node_but_the_owner_s(home: Home) -> None:
    tls = tls_of(home.keeper)
    async with AsyncClient(home.other_node.address, tls=tls, owner=home.owner) as client:
        with pytest.raises(kakeya.NodeUnreachable):
            await client.fleet.node()
    assert not home.other_node.authorizations
    assert "sesame" not in repr(home.owner)


async def test_an_ended_certificate_is_named_with_its_end(home: Home) -> None:
    began = time.time() - 8 * 86400
    async with AsyncClient(home.node.address, tls=home.tls_from(began)) as client:
        with pytest.raises(kakeya.NodeUnreachable, match="set the clock") as caught:
            await client.fleet.node()
    ended = time.strftime("%F %T", time.gmtime(int(began + WEEK)))
    assert f"this client's certificate ended at {ended} UTC" in str(caught.value)


async def test_a_certificate_of_tomorrow_is_named_with_its_beginning(home: Home) -> None:
    async with AsyncClient(home.node.address, tls=home.tls_from(time.time() + 86400)) as client:
        with pytest.raises(kakeya.NodeUnreachable, match=r"is good from .*: set the clock"):
            await client.fleet.node()


async def test_a_refused_certificate_is_one_of_the_causes(home: Home, tmp_path: Path) -> None:
    stranger = fleet_of(tmp_path / "elsewhere", 1)[0]
    tls = replace(tls_of(stranger), ca_certificates=tls_of(home.keeper).ca_certificates)
    async with AsyncClient(home.node.address, tls=tls) as client:
        with pytest.raises(kakeya.NodeUnreachable, match="takes the other's certificate") as caught:
            await client.fleet.node()
    assert "in the same fleet" in str(caught.value)


async def test_a_renewed_certificate_counts_from_the_next_connection_on(home: Home) -> None:
    member_file = home.other.files.member_file
    fresh = member_file.read_bytes()
    old, authorities = home.tls_from(time.time() - 8 * 86400), tls_of(home.other).ca_certificates
    assert isinstance(old.client_key, bytes)
    assert isinstance(old.client_certificate, bytes)
    member_file.write_bytes(old.client_key + old.client_certificate)
    assert isinstance(authorities, bytes)
    tls = Tls(lambda: authorities, member_file, member_file, "member.kakeya")
    async with AsyncClient(home.node.address, tls=tls) as client:
        with pytest.raises(kakeya.NodeUnreachable, match="ended at"):
            await client.fleet.node()
        member_file.write_bytes(fresh)
        assert (await client.fleet.node()).card.name == "mini-1"
