"""Real joins over loopback by long codes: gRPC, certificates, invitations that end."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest

from kakeya import KakeyaError
from kakeya_fleet.fleet.errors import (
    InvitationClosed,
    JoinCodeMalformed,
    JoinCodeWrong,
    JoinRefused,
    NoInvitationFound,
    TooManyInvitations,
)
from kakeya_fleet.fleet.trust.join_code import long_code, parse_join_code
from kakeya_fleet.node.admission.limits import JoiningLimits
from kakeya_fleet.node.errors import BadConfig
from kakeya_fleet.node.joining.application import JoinGrantContent, VerifiedApplication
from kakeya_fleet.node.joining.join_client import JoinDeadlines, join
from kakeya_fleet.node.joining.join_issuer import OpenInvitation
from kakeya_fleet.node.rpc.refusals import MalformedMessage
from kakeya_fleet.node.watch.event_log import EventKind
from tests.node.conftest import MakeIdentity
from tests.node.joining.conftest import Authority, MakeHouse, RequestOf
from tests.support.allowances import allowances_of
from tests.support.calls import until
from tests.support.patience import PATIENCE_SECONDS


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
    assert application.caller == "127.0.0.1"
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
    house = make_house()
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
    soon = allowances_of(joining=JoiningLimits(invitation_seconds=0.05))
    house = make_house(allowances=soon, clock=asyncio.get_running_loop().time)
    await house.issuer.invite()
    await until(lambda: house.issuer.port == 0)


async def test_a_node_closes_its_port_whatever_its_clock_says(make_house: MakeHouse) -> None:
    house = make_house()
    await house.issuer.invite()
    house.clock.now = 601.0
    async with asyncio.timeout(PATIENCE_SECONDS):
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
