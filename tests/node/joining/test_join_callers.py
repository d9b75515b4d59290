"""Joiners that keep to no contract, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import grpc
import grpc.aio
import pytest

from kakeya import KakeyaError
from kakeya.v1 import join_pb2 as wire
from kakeya.v1 import join_pb2_grpc
from kakeya_fleet.fleet.trust.join_code import parse_join_code
from kakeya_fleet.node.admission.limits import JoiningLimits
from kakeya_fleet.node.admission.share import Cause
from kakeya_fleet.node.joining.join_exchange import JoinerExchange
from kakeya_fleet.node.joining.join_issuer import OpenInvitation
from kakeya_fleet.node.joining.join_wire import (
    issuer_hello_from_wire,
    joiner_hello_to_wire,
    proof_to_wire,
)
from kakeya_fleet.node.membership.identity import Identity
from kakeya_fleet.node.watch.event_log import EventKind
from tests.node.conftest import MakeIdentity
from tests.node.joining.conftest import House, MakeHouse
from tests.support.allowances import allowances_of
from tests.support.calls import Refused, refused, until
from tests.support.patience import PATIENCE_SECONDS


class RawJoiner:
    """Says what the test wants."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.call = join_pb2_grpc.JoinServiceStub(channel).Join(timeout=PATIENCE_SECONDS)

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
    make_house: MakeHouse,
) -> None:
    allowances = allowances_of(joining=JoiningLimits(at_once=1))
    house = make_house(allowances=allowances)
    invitation = await house.issuer.invite()
    async with raw(house) as waiting:
        await waiting.answer(joiner_hello_to_wire(exchange_of(house, invitation).hello))
        with pytest.raises(KakeyaError) as raised:
            await house.join(invitation.long_codes[0])
        assert raised.value.reason == "TOO_MANY_CALLS"
        (told,) = (use for use in allowances.uses() if use.knob.name == "joining.at_once")
        assert (told.used, told.refused) == (1, {Cause.FULL: 1})
        waiting.call.cancel()
        await until(lambda: house.kinds() == [EventKind.JOIN_CODE_WRONG])
    assert await house.join(invitation.long_codes[0])
