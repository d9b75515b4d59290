"""Calls to nodes that answer, lie, hang or are not there: never an exception."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from kakeya.v1 import capability_pb2
from kakeya_fleet.fleet.membership.events import ProbeOutcome
from kakeya_fleet.fleet.membership.exchange import ExchangeMessage
from kakeya_fleet.node.membership import exchange_client
from kakeya_fleet.node.membership.exchange_client import Answered, ExchangeClient, Unanswered
from kakeya_fleet.node.membership.peers import Peers
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.listening import listen, make_server
from tests.node.conftest import Serve, ValueOf

# Of a version to come.
UNKNOWN: capability_pb2.Liveness.ValueType = 99  # type: ignore[assignment] # no member
MESSAGE = ExchangeMessage("ab" * 32, bytes(32), (), ())


async def why_not(client: ExchangeClient, address: str, timeout: float = 5) -> str:
    """The reason for which an exchange with `address` was not answered."""
    unanswered = await client.exchange(address, MESSAGE, timeout)
    assert isinstance(unanswered, Unanswered)
    return unanswered.error.reason


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    peers = Peers()
    yield peers
    await peers.close()


@pytest.fixture
def client(peers: Peers, metrics: NodeMetrics) -> ExchangeClient:
    return ExchangeClient("default", peers, metrics, time.monotonic)


Behaviour = Callable[[bytes, Any], Awaitable[bytes | None]]
Answering = Callable[[Behaviour], Awaitable[str]]


@pytest.fixture
async def answering() -> AsyncIterator[Answering]:
    """answering(behaviour): address of a server whose every method is `behaviour(bytes)`."""
    servers: list[grpc.aio.Server] = []

    async def start(behaviour: Behaviour) -> str:
        class Every(grpc.GenericRpcHandler):
            def service(
                self, details: grpc.HandlerCallDetails
            ) -> grpc.RpcMethodHandler[bytes, bytes | None]:
                return grpc.unary_unary_rpc_method_handler(behaviour)

        server = make_server()
        server.add_generic_rpc_handlers((Every(),))
        port = listen(server, "127.0.0.1", 0, 0)
        await server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        await server.stop(None)


async def test_nobody_there(client: ExchangeClient, value_of: ValueOf) -> None:
    assert await why_not(client, "127.0.0.1:1") == "NODE_UNREACHABLE"
    assert value_of("kakeya_gossip_exchanges_total", result="unreachable") == 1
    assert await client.probe("127.0.0.1:1", "cd" * 32, "ab" * 32, 1) is ProbeOutcome.SILENT
    assert await client.ping("127.0.0.1:1", "ab" * 32, 1) is None


async def test_one_that_hangs_costs_the_timeout(
    client: ExchangeClient, answering: Answering, value_of: ValueOf
) -> None:
    async def hang(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        await asyncio.Event().wait()

    address = await answering(hang)
    before = time.monotonic()
    assert await why_not(client, address, 0.3) == "DEADLINE_EXCEEDED"
    assert time.monotonic() - before > 0.25
    assert value_of("kakeya_gossip_exchanges_total", result="timeout") == 1


async def test_an_answer_that_does_not_parse(
    client: ExchangeClient, answering: Answering, value_of: ValueOf
) -> None:
    async def garbage(request: bytes, context: object) -> bytes:
        return b"\xff" * 40

    assert await why_not(client, await answering(garbage)) == "UNEXPECTED_ERROR"
    assert value_of("kakeya_gossip_exchanges_total", result="malformed") == 1


async def test_a_refusal_is_counted_apart(
    client: ExchangeClient, answering: Answering, value_of: ValueOf
) -> None:
    async def refuse(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "another fleet")

    assert await why_not(client, await answering(refuse)) == "FAILED_PRECONDITION"
    assert value_of("kakeya_gossip_exchanges_total", result="refused") == 1


async def test_a_channel_closed_under_a_call_is_no_cancellation(
    client: ExchangeClient, peers: Peers, answering: Answering
) -> None:
    entered = asyncio.Event()

    async def hang(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        entered.set()
        await asyncio.Event().wait()

    address = await answering(hang)
    calling = asyncio.ensure_future(why_not(client, address, 30))
    await entered.wait()
    await peers.prune((), ())
    assert await calling == "CANCELLED"


async def test_a_cancelled_caller_is_cancelled(
    client: ExchangeClient, answering: Answering
) -> None:
    entered = asyncio.Event()

    async def hang(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        entered.set()
        await asyncio.Event().wait()

    calling = asyncio.ensure_future(client.exchange(await answering(hang), MESSAGE, 30))
    await entered.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_unknown_values_in_an_answer_are_left_out(
    client: ExchangeClient, answering: Answering, value_of: ValueOf
) -> None:
    async def strange(request: bytes, context: object) -> bytes:
        return capability_pb2.ExchangeCapabilitiesResponse(
            sender_node_id="cd" * 32,
            cards=[capability_pb2.SignedCard(card=b"\xff")] * 64,
            rumours=[
                capability_pb2.Rumour(node_id="ab" * 32, incarnation=1, liveness=UNKNOWN),
                capability_pb2.Rumour(
                    node_id="x", incarnation=1, liveness=capability_pb2.LIVENESS_SUSPECT
                ),
                capability_pb2.Rumour(
                    node_id="ab" * 32, incarnation=1, liveness=capability_pb2.LIVENESS_SUSPECT
                ),
            ],
            digest=[
                capability_pb2.DigestEntry(node_key=1, liveness=capability_pb2.LIVENESS_UNSPECIFIED)
            ],
        ).SerializeToString()

    answered = await client.exchange(await answering(strange), MESSAGE, 5)
    assert isinstance(answered, Answered)
    assert answered.sender_id == "cd" * 32
    assert len(answered.cards) == 64
    assert len(answered.rumours) == 1
    assert answered.digest is not None
    assert answered.digest.lines == ()
    assert answered.round_trip_seconds > 0
    assert value_of("kakeya_rumours_skipped_total", rule="UNKNOWN_LIVENESS") == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            capability_pb2.ExchangeCapabilitiesResponse(
                digest=[
                    capability_pb2.DigestEntry(node_key=1, liveness=capability_pb2.LIVENESS_ALIVE)
                ]
                * 95_000
            ),
            id="digest",
        ),
        pytest.param(
            capability_pb2.ExchangeCapabilitiesResponse(
                cards=[capability_pb2.SignedCard(card=b"\xff")] * 65
            ),
            id="cards",
        ),
        pytest.param(
            capability_pb2.ExchangeCapabilitiesResponse(root_hash=bytes(1 << 20)), id="bytes"
        ),
    ],
)
async def test_an_answer_beyond_the_limits_is_not_read(
    client: ExchangeClient,
    answering: Answering,
    value_of: ValueOf,
    monkeypatch: pytest.MonkeyPatch,
    answer: capability_pb2.ExchangeCapabilitiesResponse,
) -> None:
    async def excessive(request: bytes, context: object) -> bytes:
        return answer.SerializeToString()

    def never(_: object) -> None:
        raise AssertionError("what is beyond the limits was read")

    monkeypatch.setattr(exchange_client, "digest_from_wire", never)
    monkeypatch.setattr(exchange_client, "received_from_wire", never)
    assert await why_not(client, await answering(excessive)) == "UNEXPECTED_ERROR"
    assert value_of("kakeya_gossip_exchanges_total", result="oversize") == 1


async def test_ping_believes_only_the_node_that_it_asked_for(
    client: ExchangeClient, serve: Serve, peers: Peers
) -> None:
    async def other(_request: object, _context: object) -> capability_pb2.GetNodeResponse:
        card = capability_pb2.CapabilityCard(node_id="cd" * 32)
        return capability_pb2.GetNodeResponse(card=card)

    handler = grpc.unary_unary_rpc_method_handler(
        other,
        request_deserializer=capability_pb2.GetNodeRequest.FromString,
        response_serializer=capability_pb2.GetNodeResponse.SerializeToString,
    )
    server = make_server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("kakeya.v1.CapabilityService", {"GetNode": handler}),)
    )
    address = f"127.0.0.1:{listen(server, '127.0.0.1', 0, 0)}"
    await server.start()
    seconds = await client.ping(address, "cd" * 32, 5)
    assert seconds is not None
    assert seconds > 0
    assert await client.ping(address, "ab" * 32, 5) is None
    await server.stop(None)
