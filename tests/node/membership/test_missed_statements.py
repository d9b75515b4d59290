"""A member that was away while its fleet's keepers became others, and who may tell it of that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import grpc.aio
import pytest

from kakeya.v1 import trust_pb2, trust_pb2_grpc
from kakeya_fleet.fleet.trust.statements import Keeper, Statement
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.membership.missed_statements import MissedStatements
from kakeya_fleet.node.membership.peers import Peers
from kakeya_fleet.node.membership.statement_exchange import StatementExchange
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.trust.certificates import (
    authority_id,
    issue,
    new_authority,
    new_key,
    new_request,
)
from kakeya_fleet.node.trust.membership_files import KeyPair
from kakeya_fleet.node.trust.statement_wire import statement_to_wire
from kakeya_fleet.node.trust.trust import Trust, signed_statement
from kakeya_fleet.node.watch.background import BackgroundTasks
from kakeya_fleet.node.watch.event_log import EventLog
from tests.node.conftest import StartAgent
from tests.support.members import first_keeper
from tests.support.trusted_nodes import fleet_of, id_of


class Teller(trust_pb2_grpc.TrustServiceServicer):
    """A server with an authority of its own making, which tells everybody the same."""

    def __init__(self) -> None:
        now = datetime.now(UTC)
        key, own = new_key(), new_key()
        self.node_id = id_of("teller")
        self.authority = KeyPair(key, new_authority(key, now))
        request = new_request(own, self.node_id)
        certificate = issue(key, self.authority.certificate, request, self.node_id, now)
        self.member = KeyPair(own, certificate)
        self.tells: tuple[Statement, ...] = ()
        self.heard: list[trust_pb2.ExchangeStatementsRequest] = []

    @property
    def named(self) -> Keeper:
        """That it is a keeper."""
        certificate = self.authority.certificate
        return Keeper(self.node_id, authority_id(certificate), certificate)

    async def ExchangeStatements(  # noqa: N802
        self, request: trust_pb2.ExchangeStatementsRequest, context: object
    ) -> trust_pb2.ExchangeStatementsResponse:
        self.heard.append(request)
        return trust_pb2.ExchangeStatementsResponse(statements=map(statement_to_wire, self.tells))

    async def start(self) -> tuple[grpc.aio.Server, str]:
        server = grpc.aio.server()
        trust_pb2_grpc.add_TrustServiceServicer_to_server(self, server)
        own = self.member.key_pem, self.member.certificate_pem
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([own]))
        await server.start()
        return server, f"127.0.0.1:{port}"


@pytest.fixture
async def teller() -> AsyncIterator[tuple[Teller, str]]:
    teller = Teller()  # type: ignore[abstract]  # what is never called
    server, address = await teller.start()
    yield teller, address
    await server.stop(None)


@pytest.fixture
def fleet(tmp_path: Path) -> tuple[Trust, Trust]:
    """Its keeper, and a member that hears nothing of it."""
    keeper, member = fleet_of(tmp_path / "home", 2)
    return keeper, member


async def ask(member: Trust, address: str) -> None:
    channels, refused = Channels(member), None
    async with asyncio.TaskGroup() as owner:
        tasks = BackgroundTasks(owner, EventLog(), NodeMetrics())
        exchange = StatementExchange(member, Peers(channels), tasks)
        try:
            await MissedStatements(member, channels, exchange).ask(address)
        except BadCertificate as error:
            # A group would wrap it.
            refused = error
    if refused is not None:
        raise refused


async def test_a_keeper_that_was_named_meanwhile_is_believed_by_what_the_old_one_signed(
    teller: tuple[Teller, str], fleet: tuple[Trust, Trust]
) -> None:
    new, address = teller
    keeper, member = fleet
    keeper.name_keeper(new.node_id, new.authority.certificate)
    new.tells = keeper.ledger.statements
    with pytest.raises(BadCertificate):
        member.member_of(new.member.certificate)
    await ask(member, address)
    assert member.member_of(new.member.certificate) == new.node_id
    assert member.ledger.root_hash() == keeper.ledger.root_hash()


async def test_one_that_names_itself_is_not_and_hears_nothing(
    teller: tuple[Teller, str], fleet: tuple[Trust, Trust]
) -> None:
    liar, address = teller
    member = fleet[1]
    fleet_id = member.fleet.fleet_id
    liar.tells = (signed_statement(liar.authority, fleet_id, liar.named, time.time()),)
    before = member.ledger.root_hash()
    with pytest.raises(BadCertificate, match="no keeper of this fleet"):
        await ask(member, address)
    assert member.ledger.root_hash() == before
    (heard,) = liar.heard
    assert not heard.statements
    assert list(heard.known) == [each.digest for each in member.ledger.statements]


async def test_who_is_a_member_and_what_shows_no_certificate_is_not_asked(
    teller: tuple[Teller, str], fleet: tuple[Trust, Trust]
) -> None:
    known, address = teller
    keeper, member = fleet
    keeper.name_keeper(known.node_id, known.authority.certificate)
    member.merge(keeper.ledger.statements)
    await ask(member, address)
    assert not known.heard
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    await ask(member, f"{host}:{port}")
    server.close()
    await server.wait_closed()
    await ask(member, f"{host}:{port}")


async def test_a_peer_of_another_authority_is_told_of_as_that(
    start_agent: StartAgent, fleet_name: str, tmp_path: Path
) -> None:
    first_keeper(tmp_path / "foreign", fleet_name)
    first_keeper(tmp_path / "own", fleet_name)
    foreign = await start_agent("foreign", bind="127.0.0.1:0")
    own = await start_agent("own", bind="127.0.0.1:0", peers=[foreign.address])
    told = await own.events.wait_for("seed_fault", reason="BAD_CERTIFICATE")
    assert told["address"] == foreign.address
    assert "no keeper of this fleet has signed" in told["message"]
    assert "fleet invite" in told["mend"]
