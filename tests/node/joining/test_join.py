"""Real joins over loopback: gRPC, certificates and, where it works, multicast DNS."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import grpc
import grpc.aio
import pytest

from kakeya import KakeyaError
from kakeya.v1 import join_pb2 as wire
from kakeya.v1 import join_pb2_grpc
from kakeya_fleet.fleet.errors import (
    FleetError,
    InvitationClosed,
    JoinCodeMalformed,
    JoinCodeWrong,
    JoinRefused,
    NoInvitationFound,
    TooManyInvitations,
)
from kakeya_fleet.fleet.trust.join_code import long_code, parse_join_code
from kakeya_fleet.node.errors import BadConfig
from kakeya_fleet.node.joining import join_client, join_service
from kakeya_fleet.node.joining.application import JoinGrantContent, VerifiedApplication
from kakeya_fleet.node.joining.join_client import JoinDeadlines, join
from kakeya_fleet.node.joining.join_discovery import FoundIssuer, JoinAnnouncer
from kakeya_fleet.node.joining.join_exchange import JoinerExchange
from kakeya_fleet.node.joining.join_issuer import JoinIssuer, OpenInvitation
from kakeya_fleet.node.joining.join_wire import (
    issuer_hello_from_wire,
    joiner_hello_to_wire,
    proof_to_wire,
)
from kakeya_fleet.node.membership.identity import Identity
from kakeya_fleet.node.membership.network import multicast_fault
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.refusals import MalformedMessage
from kakeya_fleet.node.watch.event_log import EventKind, EventLog
from tests.node.conftest import MakeIdentity
from tests.node.joining.conftest import Authority, RequestOf
from tests.support.calls import Refused, refused, until

LOOPBACK = ("127.0.0.1",)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class House:
    """A node that invites, and a machine that wants in."""

    issuer: JoinIssuer
    events: EventLog
    clock: Clock
    authority: Authority
    joiner: Identity
    request: bytes
    issuer_id: str

    async def join(self, code: str, **options: object) -> JoinGrantContent:
        return await join(code, self.joiner, "mini-2", self.request, **options)  # type: ignore[arg-type]

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.events.latest]


Refuse = Callable[[VerifiedApplication], JoinGrantContent]
MakeHouse = Callable[..., House]


@pytest.fixture
async def make_house(
    make_identity: MakeIdentity, metrics: NodeMetrics, authority: Authority, request_of: RequestOf
) -> AsyncIterator[MakeHouse]:
    made: list[JoinIssuer] = []

    def make(grant: Refuse | None = None, **options: object) -> House:
        clock, events, node_id = Clock(), EventLog(), make_identity().node_id
        joiner = make_identity()
        settings = {"clock": clock, "hosts": LOOPBACK, "mdns": False, **options}
        issuer = JoinIssuer(
            node_id=node_id,
            grant=grant or authority.grant,
            events=events,
            metrics=metrics,
            **settings,  # type: ignore[arg-type]
        )
        made.append(issuer)
        request = request_of(joiner.node_id)
        return House(issuer, events, clock, authority, joiner, request, node_id)

    yield make
    for each in made:
        await each.close()


def wrong(invitation: OpenInvitation) -> str:
    """A long code of the invitation with another secret."""
    code = parse_join_code(invitation.long_codes[0])
    secret = bytes(byte ^ 1 for byte in code.secret)
    return long_code(code.address, code.nameplate, secret)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_machine_joins_by_the_long_code(make_house: MakeHouse) -> None:
    house = make_house()
    invitation = await house.issuer.invite()
    assert is_listening(house.issuer.port)
    grant = await house.join(invitation.long_codes[0])
    assert house.authority.has_issued(grant.certificate)
    assert (grant.fleet_name, grant.fleet_id) == ("home", "f" * 64)
    assert (grant.statements, grant.peers) == ((b"one", b"two"), ("127.0.0.1:7100",))
    (application,) = house.authority.granted
    assert application.node_id == house.joiner.node_id
    assert application.public_key == house.joiner.public_key
    assert application.certificate_request == house.request
    assert application.name == "mini-2"
    assert application.caller.startswith("ipv4:127.0.0.1:")
    (event,) = house.events.latest
    assert event.kind is EventKind.JOINED_BY_CODE
    assert event.subject_node_id == house.joiner.node_id


async def test_nothing_listens_once_the_last_invitation_is_used(make_house: MakeHouse) -> None:
    house = make_house()
    invitation = await house.issuer.invite()
    port = house.issuer.port
    await house.join(invitation.long_codes[0])
    await until(lambda: house.issuer.port == 0)
    assert not is_listening(port)
    with pytest.raises(NoInvitationFound, match="no node answers"):
        await house.join(invitation.long_codes[0], deadlines=JoinDeadlines(connect_seconds=0.2))
    # And another one opens it again.
    again = await house.issuer.invite()
    await house.join(again.long_codes[0])


async def test_a_used_code_is_told_as_such_while_another_invitation_is_open(
    make_house: MakeHouse,
) -> None:
    house = make_house()
    invitation = await house.issuer.invite()
    await house.issuer.invite()
    await house.join(invitation.long_codes[0])
    with pytest.raises(InvitationClosed) as raised:
        await house.join(invitation.long_codes[0])
    assert raised.value.metadata["cause"] == "USED"


async def test_a_wrong_code_is_told_to_both_and_the_third_locks(make_house: MakeHouse) -> None:
    house = make_house()
    invitation = await house.issuer.invite()
    await house.issuer.invite()
    for left in "210":
        with pytest.raises(JoinCodeWrong) as raised:
            await house.join(wrong(invitation))
        assert raised.value.metadata["tries_left"] == left
    await until(lambda: EventKind.INVITATION_LOCKED in house.kinds())
    assert house.kinds() == [EventKind.JOIN_CODE_WRONG] * 3 + [EventKind.INVITATION_LOCKED]
    assert "try 3 of 3" in house.events.latest[2].message
    with pytest.raises(InvitationClosed) as closed:
        await house.join(invitation.long_codes[0])
    assert closed.value.metadata["cause"] == "LOCKED"
    assert house.authority.granted == []


async def test_time_ends_an_invitation_and_what_listens(make_house: MakeHouse) -> None:
    house = make_house(lifetime_seconds=600.0)
    first = await house.issuer.invite()
    house.clock.now = 599.0
    await house.issuer.invite()
    house.clock.now = 600.0
    with pytest.raises(InvitationClosed) as raised:
        await house.join(first.long_codes[0])
    assert raised.value.metadata["cause"] == "EXPIRED"
    assert len(house.issuer.open_invitations()) == 1


async def test_an_invitation_that_nobody_takes_closes_its_port_by_itself(
    make_house: MakeHouse,
) -> None:
    house = make_house(lifetime_seconds=0.05, clock=asyncio.get_running_loop().time)
    await house.issuer.invite()
    await until(lambda: house.issuer.port == 0)


async def test_a_node_closes_its_port_whatever_its_clock_says(make_house: MakeHouse) -> None:
    house = make_house()
    await house.issuer.invite()
    house.clock.now = 601.0
    async with asyncio.timeout(20):
        await house.issuer.close()
    assert house.issuer.port == 0
    await house.issuer.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
async def test_all_addresses_are_one_port_and_each_has_its_long_code(
    make_house: MakeHouse,
) -> None:
    house = make_house(hosts=("127.0.0.1", "::1"))
    codes = (await house.issuer.invite()).long_codes
    port = house.issuer.port
    addresses = [code.partition("#")[0] for code in codes]
    assert addresses == [f"127.0.0.1:{port}", f"[::1]:{port}"]
    assert house.authority.has_issued((await house.join(codes[1])).certificate)


async def test_what_was_withdrawn_is_over_and_a_fifth_is_one_too_many(
    make_house: MakeHouse,
) -> None:
    house = make_house()
    made = [await house.issuer.invite() for _ in range(4)]
    with pytest.raises(TooManyInvitations):
        await house.issuer.invite()
    house.issuer.withdraw(made[0].nameplate)
    with pytest.raises(InvitationClosed, match="withdrawn"):
        await house.join(made[0].long_codes[0])


async def test_a_refusal_reaches_the_joiner_with_its_words_and_the_code_stays_good(
    make_house: MakeHouse, authority: Authority
) -> None:
    is_full = [True]

    def grant(application: VerifiedApplication) -> JoinGrantContent:
        if is_full.pop():
            raise BadConfig("this name is taken", "join with another --name")
        return authority.grant(application)

    house = make_house(grant)
    invitation = await house.issuer.invite()
    with pytest.raises(JoinRefused, match="this name is taken: join with another --name"):
        await house.join(invitation.long_codes[0])
    assert house.kinds() == [EventKind.JOIN_REFUSED]
    is_full.append(False)
    await house.join(invitation.long_codes[0])


async def test_a_grant_that_fails_in_an_unknown_way_lets_nobody_in_again(
    make_house: MakeHouse, caplog: pytest.LogCaptureFixture
) -> None:
    def grant(application: VerifiedApplication) -> JoinGrantContent:
        raise ZeroDivisionError

    house = make_house(grant)
    invitation = await house.issuer.invite()
    await house.issuer.invite()
    with pytest.raises(KakeyaError) as raised:
        await house.join(invitation.long_codes[0])
    assert raised.value.reason == "INTERNAL_ERROR"
    with pytest.raises(InvitationClosed):
        await house.join(invitation.long_codes[0])


async def test_of_two_machines_at_once_one_joins(
    make_house: MakeHouse, make_identity: MakeIdentity, request_of: RequestOf
) -> None:
    house = make_house()
    invitation = await house.issuer.invite()
    await house.issuer.invite()
    identities = [make_identity() for _ in range(2)]
    outcomes = await asyncio.gather(
        *(
            join(invitation.long_codes[0], each, "mini", request_of(each.node_id))
            for each in identities
        ),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in outcomes) == [
        "InvitationClosed",
        "JoinGrantContent",
    ]
    assert len(house.authority.granted) == 1


async def test_a_code_that_is_mistyped_is_sent_nowhere(make_house: MakeHouse) -> None:
    house = make_house()
    code = (await house.issuer.invite()).long_codes[0]
    swapped = code[:-2] + code[-1] + code[-2]
    if swapped != code:
        with pytest.raises(JoinCodeMalformed):
            await house.join(swapped)
    assert house.kinds() == []


async def test_a_certificate_for_another_key_is_refused_by_the_joiner(
    make_house: MakeHouse, authority: Authority, request_of: RequestOf
) -> None:
    def grant(application: VerifiedApplication) -> JoinGrantContent:
        return authority.grant(
            replace(application, certificate_request=request_of(application.node_id))
        )

    house = make_house(grant)
    with pytest.raises(MalformedMessage, match="another key"):
        await house.join((await house.issuer.invite()).long_codes[0])


# Joiners that keep to no contract


class RawJoiner:
    """Says what the test wants."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.call = join_pb2_grpc.JoinServiceStub(channel).Join(timeout=20)

    async def answer(self, request: wire.JoinRequest) -> wire.JoinResponse:
        await self.call.write(request)
        response = await self.call.read()
        assert isinstance(response, wire.JoinResponse)
        return response

    async def refusal(self, *requests: wire.JoinRequest) -> Refused:
        with suppress(asyncio.InvalidStateError):
            for request in requests:
                await self.call.write(request)
            await self.call.done_writing()
        try:
            while await self.call.read() is not grpc.aio.EOF:
                pass
            raise AssertionError("the join succeeded")
        except grpc.aio.AioRpcError as error:
            return refused(error)


@asynccontextmanager
async def raw(house: House) -> AsyncIterator[RawJoiner]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{house.issuer.port}") as channel:
        yield RawJoiner(channel)


def exchange_of(house: House, invitation: OpenInvitation) -> JoinerExchange:
    return JoinerExchange(parse_join_code(invitation.short_code), house.joiner.node_id)


async def test_what_is_no_hello_is_refused_and_costs_no_try(make_house: MakeHouse) -> None:
    house = make_house()
    invitation = await house.issuer.invite()
    good = joiner_hello_to_wire(exchange_of(house, invitation).hello)

    def changed(**fields: object) -> wire.JoinRequest:
        request = wire.JoinRequest.FromString(good.SerializeToString())
        for name, value in fields.items():
            setattr(request.hello, name, value)
        return request

    strange = {
        "BAD_REQUEST": [
            wire.JoinRequest(),
            wire.JoinRequest(proof=wire.JoinerProof()),
            changed(code_kind=0),
            changed(code_kind=9),
            changed(nameplate="1" * 1000),
            changed(node_id="x"),
            changed(pake_message=b"A" * 32),
        ],
        "PROTOCOL_SKEW": [changed(protocol_min=7, protocol_max=9)],
        "NO_INVITATION_FOUND": [changed(nameplate="äöü")],
    }
    for reason, requests in strange.items():
        for request in requests:
            async with raw(house) as joiner:
                assert (await joiner.refusal(request)).reason == reason
    async with raw(house) as joiner:
        assert (await joiner.refusal()).reason == "BAD_REQUEST"
    assert house.kinds() == []


async def test_a_message_past_the_bound_is_refused_before_it_is_read(
    make_house: MakeHouse,
) -> None:
    house = make_house()
    invitation = await house.issuer.invite()
    hello = joiner_hello_to_wire(exchange_of(house, invitation).hello)
    hello.hello.nameplate = "1" * (1 << 17)
    async with raw(house) as joiner:
        assert (await joiner.refusal(hello)).code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert house.kinds() == []


async def test_an_application_of_another_node_or_exchange_is_refused(
    make_house: MakeHouse, make_identity: MakeIdentity
) -> None:
    house = make_house()
    invitation = await house.issuer.invite()
    other = make_identity()

    async def refusal(application: Callable[[bytes], wire.JoinApplication]) -> str:
        exchange = exchange_of(house, invitation)
        async with raw(house) as joiner:
            response = await joiner.answer(joiner_hello_to_wire(exchange.hello))
            exchange.receive(issuer_hello_from_wire(response))
            sealed = application(exchange.transcript_hash).SerializeToString()
            told = await joiner.refusal(proof_to_wire(exchange.prove(sealed)))
        assert told.reason == "BAD_REQUEST"
        return told.text

    def signed(by: Identity, key: bytes, transcript_hash: bytes) -> wire.JoinApplication:
        message = b"kakeya.v1.join" + transcript_hash + house.request
        return wire.JoinApplication(
            certificate_request=house.request,
            public_key=key,
            name="mini-2",
            signature=by.sign(message),
        )

    assert "another node id" in await refusal(lambda hash_: signed(other, other.public_key, hash_))
    text = await refusal(lambda hash_: signed(other, house.joiner.public_key, hash_))
    assert "not signed by the node's key" in text
    # A signature of an exchange before this one.
    text = await refusal(lambda _: signed(house.joiner, house.joiner.public_key, bytes(32)))
    assert "not signed by the node's key" in text
    assert house.authority.granted == []
    await until(lambda: EventKind.INVITATION_LOCKED in house.kinds())


async def test_a_joiner_that_hangs_up_has_spent_a_try(make_house: MakeHouse) -> None:
    house = make_house()
    invitation = await house.issuer.invite()
    async with raw(house) as joiner:
        await joiner.answer(joiner_hello_to_wire(exchange_of(house, invitation).hello))
        joiner.call.cancel()
        await until(lambda: house.kinds() == [EventKind.JOIN_CODE_WRONG])


async def test_no_more_join_at_once_than_may_and_who_is_refused_hears_why(
    make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_service, "MOST_AT_ONCE", 1)
    house = make_house()
    invitation = await house.issuer.invite()
    async with raw(house) as waiting:
        await waiting.answer(joiner_hello_to_wire(exchange_of(house, invitation).hello))
        with pytest.raises(KakeyaError) as raised:
            await house.join(invitation.long_codes[0])
        assert raised.value.reason == "TOO_MANY_CALLS"
        waiting.call.cancel()
        await until(lambda: house.kinds() == [EventKind.JOIN_CODE_WRONG])
    assert await house.join(invitation.long_codes[0])


# Short codes


@pytest.fixture
def _loopback_multicast() -> None:
    fault = multicast_fault("127.0.0.1")
    if fault is not None:
        pytest.skip(fault)


@pytest.mark.usefixtures("_loopback_multicast")
async def test_a_machine_joins_by_the_short_code_found_by_multicast(
    make_house: MakeHouse,
) -> None:
    house = make_house(mdns=True)
    invitation = await house.issuer.invite()
    assert invitation.multicast_fault == ""
    grant = await house.join(
        invitation.short_code.replace("-", " "),
        interfaces=LOOPBACK,
        deadlines=JoinDeadlines(search_seconds=60.0),
    )
    assert house.authority.has_issued(grant.certificate)


@pytest.mark.usefixtures("_loopback_multicast")
async def test_a_code_that_nobody_announces_is_not_found(make_house: MakeHouse) -> None:
    with pytest.raises(NoInvitationFound, match="no node announced the invitation 999"):
        await make_house().join(
            "999-000-000", interfaces=LOOPBACK, deadlines=JoinDeadlines(search_seconds=0.1)
        )


async def test_a_node_without_multicast_says_that_the_short_code_is_not_found(
    make_house: MakeHouse,
) -> None:
    invitation = await make_house().issuer.invite()
    assert invitation.multicast_fault == "multicast DNS is switched off on this node"
    # The interface of no machine.
    announcer = JoinAnnouncer("aa" * 32, ("192.0.2.77",), 7101)
    assert "192.0.2.77" in announcer.fault
    await announcer.show(["123"])
    await announcer.close()


async def test_a_network_without_multicast_is_told_with_the_short_code(
    make_house: MakeHouse,
) -> None:
    with pytest.raises(NoInvitationFound, match="no IPv4 address"):
        await make_house().join("999-000-000", interfaces=("::1",))


@dataclass
class FakeSearch:
    """Finds what the test says, in place of the network."""

    found: list[FoundIssuer]
    fault: str = ""

    def __call__(self, nameplate: str, interfaces: object) -> FakeSearch:
        return self

    async def __aenter__(self) -> FakeSearch:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def next(self, seconds: float) -> FoundIssuer | None:
        return self.found.pop(0) if self.found else None


async def test_of_several_issuers_of_one_nameplate_the_one_with_the_code_is_found(
    make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    house, neighbour = make_house(), make_house()
    invitation = await house.issuer.invite()
    # The neighbour's has the same nameplate by chance.
    monkeypatch.setattr("secrets.randbelow", same_nameplate(invitation.nameplate))
    assert (await neighbour.issuer.invite()).nameplate == invitation.nameplate
    closed = f"127.0.0.1:{free_port()}"
    found = [
        FoundIssuer("cc" * 32, (closed,)),
        FoundIssuer(neighbour.issuer_id, (closed, f"127.0.0.1:{neighbour.issuer.port}")),
        FoundIssuer(house.issuer_id, (f"127.0.0.1:{house.issuer.port}",)),
    ]
    monkeypatch.setattr(join_client, "IssuerSearch", FakeSearch(found))
    grant = await house.join(invitation.short_code, deadlines=JoinDeadlines(connect_seconds=0.5))
    assert house.authority.has_issued(grant.certificate)
    await until(lambda: neighbour.kinds() == [EventKind.JOIN_CODE_WRONG])


async def test_false_announcements_get_three_guesses_and_no_more(
    make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    houses = [make_house() for _ in range(4)]
    monkeypatch.setattr("secrets.randbelow", same_nameplate("123"))
    found = []
    for each in houses:
        await each.issuer.invite()
        found.append(FoundIssuer(each.issuer_id, (f"127.0.0.1:{each.issuer.port}",)))
    monkeypatch.setattr(join_client, "IssuerSearch", FakeSearch(found))
    with pytest.raises(FleetError) as raised:
        await houses[0].join("123-999-999")
    assert isinstance(raised.value, JoinCodeWrong)
    assert [house.kinds() for house in houses] == [[EventKind.JOIN_CODE_WRONG]] * 3 + [[]]


def same_nameplate(nameplate: str) -> Callable[[int], int]:
    return lambda below: int(nameplate) if below > int(nameplate) else 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
