"""Clients with a key: tokens go to members of the fleet alone, whatever address was told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, Timeouts, Tls
from kakeya_fleet.node.trust.certificates import MEMBER_NAME
from kakeya_fleet.node.trust.tls import applications_credentials, authorities_pem
from kakeya_fleet.node.trust.trust import Trust
from tests.support import scripted_node as scripted
from tests.support.scripted_answers import PLAN, next_token
from tests.support.trusted_nodes import fleet_of

KEY = "kky_sesame"


@dataclass
class Told:
    """A node that answers applications, and one at the address that it tells of."""

    home: scripted.ScriptedNode
    there: scripted.ScriptedNode
    tls: Tls

    def client(self, tls: Tls | None = None) -> AsyncClient:
        return AsyncClient(
            self.home.address, api_key=KEY, tls=tls or self.tls, timeouts=Timeouts(resume=2)
        )

    def redirect(self) -> None:
        """The model is served by a member, which applications call at its own port."""
        self.home.refuse(
            "CreateSession",
            grpc.StatusCode.FAILED_PRECONDITION,
            reason="MODEL_SERVED_ELSEWHERE",
            metadata={
                "address": "127.0.0.1:1",
                "encrypted": "true",
                "applications_address": self.there.address,
            },
        )

    def tell_of_both(self) -> None:
        """Cards as members have them: the port for applications besides the members' own."""
        event = scripted.fleet_of(self.home, self.there)
        for status in event.snapshot.nodes:
            status.card.certificate = b"not looked at here"
            status.card.applications_port = int(status.card.addresses[0].rpartition(":")[2])
            status.card.addresses[:] = ["127.0.0.1:1"]
        self.home.fleet_events = self.there.fleet_events = [event]


async def started(
    there: grpc.ServerCredentials | None, own: Trust, second: Trust | None = None
) -> Told:
    nodes = (
        scripted.ScriptedNode("mini-1", own.node_id),
        scripted.ScriptedNode("mini-2", second.node_id if second is not None else "bb"),
    )
    await nodes[0].start(applications_credentials(own))
    await nodes[1].start(there)
    return Told(*nodes, Tls(authorities_pem(own), server_name=MEMBER_NAME))


@pytest.fixture
async def certified(tmp_path: Path) -> AsyncIterator[Told]:
    own, other = fleet_of(tmp_path / "home", 2)
    told = await started(applications_credentials(other), own, other)
    yield told
    for node in (told.home, told.there):
        await node.stop()


@pytest.fixture(params=["of another fleet", "in plain text"])
async def impostor(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Told]:
    (own,), (foreign,) = fleet_of(tmp_path / "home", 1), fleet_of(tmp_path / "foreign", 1)
    is_foreign = request.param == "of another fleet"
    there = applications_credentials(foreign) if is_foreign else None
    told = await started(there, own)
    yield told
    for node in (told.home, told.there):
        await node.stop()


async def test_redirects_and_successors_are_members_at_their_port_for_applications(
    certified: Told,
) -> None:
    certified.redirect()
    certified.tell_of_both()
    async with certified.client() as client:
        session = await client.create_session("tiny", tokens=[1], resume=True)
        assert session.address == certified.there.address
        await certified.there.stop()
        completion = await session.generate(6).collect()
        assert session.address == certified.home.address
    assert completion.token_ids == tuple(next_token(each) for each in range(1, 7))
    assert set(certified.there.authorizations) == {f"Bearer {KEY}"}


async def test_an_impostor_at_the_told_address_gets_no_token_and_no_key(impostor: Told) -> None:
    impostor.redirect()
    async with impostor.client() as client:
        with pytest.raises(kakeya.NodeUnreachable):
            await client.create_session("tiny", tokens=[1, 2, 3])
    assert not impostor.there.requests
    assert not impostor.there.authorizations


async def test_an_impostor_is_no_successor_either(impostor: Told) -> None:
    impostor.tell_of_both()
    async with impostor.client() as client:
        session = await client.create_session("tiny", tokens=[1, 2, 3], resume=True)
        await impostor.home.stop()
        with pytest.raises(kakeya.KakeyaError):
            await session.generate(6).collect()
    assert not impostor.there.requests
    assert not impostor.there.authorizations


async def test_a_node_without_a_port_for_applications_is_no_successor(certified: Told) -> None:
    certified.tell_of_both()
    for status in certified.home.fleet_events[0].snapshot.nodes:
        status.card.ClearField("applications_port")
        status.card.addresses[:] = [certified.there.address]
    async with certified.client() as client:
        session = await client.create_session("tiny", tokens=[1], resume=True)
        await certified.home.stop()
        with pytest.raises(kakeya.KakeyaError):
            await session.generate(6).collect()
    assert not certified.there.requests


async def test_a_program_in_plain_text_goes_on_at_its_own_node_that_forgot_the_session() -> None:
    """Whose card names a port that it cannot call: the one for members."""
    node = scripted.ScriptedNode("mini-1", PLAN.verifier.node_id)
    await node.start()
    event = scripted.fleet_of(node)
    event.snapshot.nodes[0].card.certificate = b"not looked at here"
    event.snapshot.nodes[0].card.addresses[:] = ["127.0.0.1:1"]
    node.fleet_events = [event]
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", tokens=[1], resume=True)
        node.sessions.clear()
        completion = await session.generate(3).collect()
        assert session.address == node.address
    assert completion.token_ids == tuple(next_token(each) for each in range(1, 4))
    await node.stop()
