"""Issuers that are none, and bytes that are no message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from kakeya import KakeyaError
from kakeya.v1 import join_pb2 as wire
from kakeya.v1 import join_pb2_grpc
from kakeya_fleet.fleet.errors import FleetError, JoinCodeWrong, NoInvitationFound
from kakeya_fleet.fleet.trust.join_code import long_code
from kakeya_fleet.node.admission.limits import JoiningLimits
from kakeya_fleet.node.joining import join_client
from kakeya_fleet.node.joining.join_client import JoinDeadlines, join
from kakeya_fleet.node.joining.join_issuer import JoinIssuer
from kakeya_fleet.node.membership.identity import Identity
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.refusals import MalformedMessage
from kakeya_fleet.node.watch.event_log import EventLog
from tests.node.joining.conftest import Authority, RequestOf
from tests.support.allowances import allowances_of
from tests.support.calls import refused

Behaviour = Callable[[AsyncIterator[wire.JoinRequest], "Context"], Awaitable[None]]
Context = grpc.aio.ServicerContext[wire.JoinRequest, wire.JoinResponse]


class Strange(join_pb2_grpc.JoinServiceServicer):
    """Answers as the test wants."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour

    async def Join(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[wire.JoinRequest], context: Context
    ) -> None:
        await self._behaviour(request_iterator, context)


@pytest.fixture
async def fault_of(identity: Identity, request_of: RequestOf) -> AsyncIterator[object]:
    """fault_of(behaviour): what a join with such an issuer ends with; None serves no joins."""
    servers: list[grpc.aio.Server] = []

    async def fault(behaviour: Behaviour | None, join_seconds: float = 20.0) -> Exception:
        server = grpc.aio.server()
        servers.append(server)
        if behaviour is not None:
            join_pb2_grpc.add_JoinServiceServicer_to_server(Strange(behaviour), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        deadlines = JoinDeadlines(join_seconds=join_seconds, more_seconds=0.1)
        code = long_code(f"127.0.0.1:{port}", "123", bytes(16))
        request = request_of(identity.node_id)
        with pytest.raises((FleetError, KakeyaError, MalformedMessage)) as raised:
            await join(code, identity, "mini-2", request, deadlines=deadlines)
        return raised.value

    yield fault
    for server in servers:
        await server.stop(None)


Method = grpc.aio.StreamStreamMultiCallable[bytes, bytes]
FaultOf = Callable[..., Awaitable[Exception]]


async def test_a_port_that_serves_no_joins_is_told_as_such(fault_of: FaultOf) -> None:
    fault = await fault_of(None)
    assert isinstance(fault, NoInvitationFound)
    assert "takes no joins" in str(fault)


@pytest.mark.parametrize("lost_count", [1, 2])
async def test_a_refusal_that_was_lost_under_the_hello_is_asked_for_again(
    fault_of: FaultOf, monkeypatch: pytest.MonkeyPatch, lost_count: int
) -> None:
    """gRPC says INTERNAL where the call ended while the hello was written."""
    send, lost = join_client._send, [None] * lost_count

    async def losing(call: Any, request: wire.JoinRequest) -> None:
        if lost:
            lost.pop()
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, nothing, nothing)
        await send(call, request)

    monkeypatch.setattr(join_client, "_send", losing)
    fault = await fault_of(None)
    assert isinstance(fault, NoInvitationFound)
    assert not lost


async def test_an_issuer_that_says_nothing_is_left(fault_of: FaultOf) -> None:
    async def silent(_requests: object, _context: Context) -> None:
        await asyncio.Event().wait()

    fault = await fault_of(silent, 0.3)
    assert isinstance(fault, NoInvitationFound)
    assert "did not go on" in str(fault)


async def test_an_issuer_that_ends_or_answers_out_of_order_is_malformed(fault_of: FaultOf) -> None:
    async def ends(_requests: object, _context: Context) -> None:
        return

    async def hurries(_requests: object, context: Context) -> None:
        await context.write(wire.JoinResponse(grant=wire.SealedGrant(sealed_grant=b"x")))

    for behaviour in (ends, hurries):
        assert isinstance(await fault_of(behaviour), MalformedMessage)


async def test_an_issuer_without_the_code_gets_no_application(fault_of: FaultOf) -> None:
    heard: list[wire.JoinRequest] = []
    ended = asyncio.Event()

    async def guesses(requests: AsyncIterator[wire.JoinRequest], context: Context) -> None:
        hello = await anext(requests)
        # A point of the group, made without any password.
        await context.write(
            wire.JoinResponse(
                hello=wire.IssuerHello(
                    protocol_version=1,
                    node_id="bb" * 32,
                    pake_message=b"B" + GENERATOR,
                    confirmation=bytes(32),
                )
            )
        )
        heard.append(hello)
        heard.extend([request async for request in requests])
        ended.set()

    assert isinstance(await fault_of(guesses), JoinCodeWrong)
    async with asyncio.timeout(20):
        await ended.wait()
    assert [request.WhichOneof("step") for request in heard] == ["hello"]


# Of Ed25519 (RFC 8032): y = 4/5.
GENERATOR = bytes([0x58] + [0x66] * 31)


async def test_words_of_a_stranger_steer_no_terminal(fault_of: FaultOf) -> None:
    async def shouts(_requests: object, context: Context) -> None:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "\x1b[2J" + "loud" * 400)

    fault = await fault_of(shouts)
    assert str(fault).startswith("[2Jloud")
    assert str(fault).isprintable()
    assert len(str(fault)) <= 400


@pytest.fixture
def joining() -> JoiningLimits:
    return JoiningLimits()


@pytest.fixture
async def issuer(
    metrics: NodeMetrics, authority: Authority, joining: JoiningLimits
) -> AsyncIterator[JoinIssuer]:
    made = JoinIssuer(
        node_id="bb" * 32,
        hosts=("127.0.0.1",),
        grant=authority.grant,
        events=EventLog(),
        metrics=metrics,
        allowances=allowances_of(joining=joining),
        mdns=False,
    )
    yield made
    await made.close()


async def test_bytes_that_are_no_message_end_the_call_and_nothing_else(
    issuer: JoinIssuer, identity: Identity, request_of: RequestOf
) -> None:
    invitation = await issuer.invite()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{issuer.port}") as channel:
        method: Method = channel.stream_stream("/kakeya.v1.JoinService/Join")
        for junk in (b"\xff" * 64, b"\x0a\x04\x22\x02\xff\xfe", b""):
            call = method(timeout=20)
            await call.write(junk)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call.read()
            assert refused(raised.value).reason == "BAD_REQUEST"
    assert len(issuer.open_invitations()) == 1
    request = request_of(identity.node_id)
    assert await join(invitation.long_codes[0], identity, "mini-2", request)


@pytest.mark.parametrize("joining", [JoiningLimits(seconds=0.05)])
async def test_a_joiner_that_does_not_go_on_is_left(issuer: JoinIssuer) -> None:
    await issuer.invite()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{issuer.port}") as channel:
        call = join_pb2_grpc.JoinServiceStub(channel).Join(timeout=20)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
        assert "did not go on" in refused(raised.value).text
