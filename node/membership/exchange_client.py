"""Calls of the control plane to other nodes, and what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import grpc
import grpc.aio

from kakeya import Cancelled, KakeyaError, UnexpectedError
from kakeya.rpc_status import kakeya_error
from kakeya.v1 import capability_pb2, capability_pb2_grpc
from kakeya_fleet.fleet.cards.card import PROTOCOL_MAX, PROTOCOL_MIN
from kakeya_fleet.fleet.cards.liveness import Rumour
from kakeya_fleet.fleet.membership.digest import DigestPart
from kakeya_fleet.fleet.membership.events import ProbeOutcome, ReceivedCard
from kakeya_fleet.fleet.membership.exchange import ExchangeMessage
from kakeya_fleet.node.membership.capability_wire import (
    digest_from_wire,
    rumours_from_wire,
    rumours_to_wire,
)
from kakeya_fleet.node.membership.card_wire import received_from_wire, signed_to_wire
from kakeya_fleet.node.membership.exchange_limits import ANSWER_LIMITS
from kakeya_fleet.node.membership.peers import Peers
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.closed_channels import closed_under_call
from kakeya_fleet.node.rpc.message_limits import beyond_limits

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Answered:
    """What another node answered; `round_trip_seconds` covers the whole call."""

    sender_id: str
    root_hash: bytes
    cards: tuple[ReceivedCard, ...]
    rumours: tuple[Rumour, ...]
    digest: DigestPart | None
    round_trip_seconds: float
    trust_hash: bytes = b""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A call that got no answer, or none that helps: `error` says why."""

    error: KakeyaError


class ExchangeClient:
    """Exchanges and indirect probes in the name of one fleet."""

    def __init__(
        self,
        fleet_name: str,
        peers: Peers,
        metrics: NodeMetrics,
        clock: Callable[[], float],
        trust_hash: Callable[[], bytes] = bytes,
    ) -> None:
        self._fleet_name = fleet_name
        self._trust_hash = trust_hash
        self._peers = peers
        self._metrics = metrics
        self._clock = clock

    async def exchange(
        self, address: str, message: ExchangeMessage, timeout_seconds: float, node_id: str = ""
    ) -> Answered | Unanswered:
        """One round with the node at host:port, or with whoever answers there if none is named."""
        request = capability_pb2.ExchangeCapabilitiesRequest(
            sender_node_id=message.sender_id,
            fleet_name=self._fleet_name,
            protocol_min=PROTOCOL_MIN,
            protocol_max=PROTOCOL_MAX,
            root_hash=message.root_hash,
            cards=[signed_to_wire(card) for card in message.cards],
            rumours=rumours_to_wire(message.rumours),
            wanted_node_keys=message.wanted_node_keys,
            trust_hash=self._trust_hash(),
        )
        channel = self._peers.channel(address, node_id)
        stub = capability_pb2_grpc.CapabilityServiceStub(channel)
        before = self._clock()
        response = await self._answered(
            stub.ExchangeCapabilities(request, timeout=timeout_seconds),
            capability_pb2.ExchangeCapabilitiesResponse,
            address,
        )
        if isinstance(response, Unanswered):
            return response
        excess = beyond_limits(response, ANSWER_LIMITS)
        if excess:
            self._count("oversize")
            return Unanswered(UnexpectedError(f"{address} answered outside the contract: {excess}"))
        self._count("ok")
        seconds = self._clock() - before
        self._metrics.gossip_round_trip_seconds.observe(seconds)
        return Answered(
            sender_id=response.sender_node_id,
            root_hash=response.root_hash,
            cards=tuple(map(received_from_wire, response.cards)),
            rumours=rumours_from_wire(response.rumours, self._metrics),
            digest=digest_from_wire(response),
            round_trip_seconds=seconds,
            trust_hash=response.trust_hash,
        )

    async def probe(
        self, via: str, via_id: str, node_id: str, timeout_seconds: float
    ) -> ProbeOutcome:
        """Asks the node `via_id` at `via` (host:port) to probe another one."""
        stub = capability_pb2_grpc.CapabilityServiceStub(self._peers.channel(via, via_id))
        request = capability_pb2.ProbePeerRequest(node_id=node_id, timeout_seconds=timeout_seconds)
        response = await self._answered(
            stub.ProbePeer(request, timeout=2 * timeout_seconds),
            capability_pb2.ProbePeerResponse,
            via,
        )
        if isinstance(response, Unanswered):
            return ProbeOutcome.SILENT
        self._count("ok")
        return ProbeOutcome.REACHED if response.reachable else ProbeOutcome.UNREACHED

    async def ping(self, address: str, node_id: str, timeout_seconds: float) -> float | None:
        """Round trip in seconds to the node at host:port; None when it did not answer."""
        stub = capability_pb2_grpc.CapabilityServiceStub(self._peers.channel(address, node_id))
        before = self._clock()
        response = await self._answered(
            stub.GetNode(capability_pb2.GetNodeRequest(), timeout=timeout_seconds),
            capability_pb2.GetNodeResponse,
            address,
        )
        if isinstance(response, Unanswered):
            return None
        self._count("ok")
        if response.card.node_id != node_id:
            return None
        return self._clock() - before

    async def _answered(
        self,
        call: grpc.aio.UnaryUnaryCall[Request, Response],
        kind: type[Response],
        address: str,
    ) -> Response | Unanswered:
        """The response, or the fault, which is counted by its result."""
        try:
            response = await call
        except grpc.aio.AioRpcError as error:
            self._count(_result(error.code()))
            return Unanswered(kakeya_error(error, address))
        except asyncio.CancelledError:
            if not closed_under_call():
                raise
            # The channel was closed under the call: the node moved or has gone.
            self._count("unreachable")
            return Unanswered(Cancelled(f"the channel to {address} was closed"))
        # gRPC gives None for bytes that do not parse.
        if not isinstance(response, kind):
            self._count("malformed")
            return Unanswered(UnexpectedError(f"{address} answered outside the contract"))
        return response

    def _count(self, result: str) -> None:
        self._metrics.gossip_exchanges.labels(result=result).inc()


def _result(code: grpc.StatusCode) -> str:
    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return "timeout"
        case grpc.StatusCode.UNAVAILABLE:
            return "unreachable"
        case grpc.StatusCode.INTERNAL | grpc.StatusCode.UNKNOWN:
            return "malformed"
        case _:
            return "refused"
