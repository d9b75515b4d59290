"""CapabilityService: membership as other nodes, tools and dashboards see it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote

import grpc.aio

from kakeya.v1 import capability_pb2, capability_pb2_grpc
from kakeya_fleet.fleet.cards.card import PROTOCOL_MAX, PROTOCOL_MIN, SignedCard
from kakeya_fleet.fleet.errors import FleetMismatch, ProtocolSkew
from kakeya_fleet.fleet.membership.exchange import ExchangeMessage
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.app.limits_wire import use_to_wire
from kakeya_fleet.node.app.node_report import NodeReport
from kakeya_fleet.node.membership.capability_wire import (
    digest_to_wire,
    is_node_id,
    rumours_from_wire,
    rumours_to_wire,
)
from kakeya_fleet.node.membership.card_wire import received_from_wire, signed_to_wire
from kakeya_fleet.node.membership.exchange_limits import REQUEST_LIMITS
from kakeya_fleet.node.membership.fleet_snapshot import WatchedNodes, subject_of
from kakeya_fleet.node.membership.fleet_watch import FleetWatch
from kakeya_fleet.node.membership.gossip import Gossip
from kakeya_fleet.node.membership.known_fleet import KnownFleet
from kakeya_fleet.node.membership.network import is_of_this_machine
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.authorisation import require_sender
from kakeya_fleet.node.rpc.grpc_settings import PROBE_TIMEOUT_SECONDS
from kakeya_fleet.node.rpc.message_limits import beyond_limits
from kakeya_fleet.node.rpc.refusals import MalformedMessage, NotLoopback
from kakeya_fleet.node.watch.backlog import Backlog
from kakeya_fleet.node.watch.node_sample import KEPT_SECONDS
from kakeya_fleet.node.watch.node_watch import NodeWatch
from kakeya_fleet.node.watch.snapshot_parts import snapshot_and_changes
from kakeya_fleet.node.watch.span_ring import MAX_REQUEST_CHARACTERS
from kakeya_fleet.node.watch.span_wire import spans_to_wire

if TYPE_CHECKING:
    from typing import TypeAlias, TypeVar

    Request = TypeVar("Request")
    Response = TypeVar("Response")
    Context: TypeAlias = grpc.aio.ServicerContext[Request, Response]

SERVICE_NAME = capability_pb2.DESCRIPTOR.services_by_name["CapabilityService"].full_name


class CapabilityServicer(capability_pb2_grpc.CapabilityServiceServicer):
    """Answers other nodes from the gossip, and tools from the known fleet.

    `leave(drain_seconds)` asks the agent to leave and returns at once.
    """

    def __init__(
        self,
        gossip: Gossip,
        known: KnownFleet,
        watch: FleetWatch,
        report: NodeReport,
        node_watch: NodeWatch,
        metrics: NodeMetrics,
        allowances: Allowances,
        leave: Callable[[float], None],
    ) -> None:
        self._gossip = gossip
        self._known = known
        self._watch = watch
        self._report = report
        self._node_watch = node_watch
        self._metrics = metrics
        self._allowances = allowances
        self._leave = leave

    async def ExchangeCapabilities(  # noqa: N802
        self,
        request: capability_pb2.ExchangeCapabilitiesRequest,
        context: Context[
            capability_pb2.ExchangeCapabilitiesRequest, capability_pb2.ExchangeCapabilitiesResponse
        ],
    ) -> capability_pb2.ExchangeCapabilitiesResponse:
        """Raises `MalformedMessage`, `FleetMismatch`, `ProtocolSkew`, `BadCertificate`."""
        self._check_exchange(request)
        require_sender(request.sender_node_id)
        received = [received_from_wire(card) for card in request.cards]
        message = ExchangeMessage(
            sender_id=request.sender_node_id,
            root_hash=request.root_hash,
            cards=tuple(card for card in received if isinstance(card, SignedCard)),
            rumours=(),
            wanted_node_keys=tuple(request.wanted_node_keys),
        )
        answer, skipped = self._gossip.answer(
            message,
            received,
            rumours_from_wire(request.rumours, self._metrics),
            _host_of(context.peer()),
        )
        return capability_pb2.ExchangeCapabilitiesResponse(
            sender_node_id=answer.sender_id,
            root_hash=answer.root_hash,
            cards=[signed_to_wire(card) for card in answer.cards],
            rumours=rumours_to_wire(answer.rumours),
            digest=digest_to_wire(answer.digest.lines) if answer.digest is not None else (),
            digest_first_key=answer.digest.first_key if answer.digest is not None else 0,
            digest_last_key=answer.digest.last_key if answer.digest is not None else 0,
            trust_hash=self._known.trust_hash(),
            skipped=[
                capability_pb2.SkippedCard(index=index, reason=rule) for index, rule in skipped
            ],
        )

    async def ProbePeer(  # noqa: N802
        self,
        request: capability_pb2.ProbePeerRequest,
        context: Context[capability_pb2.ProbePeerRequest, capability_pb2.ProbePeerResponse],
    ) -> capability_pb2.ProbePeerResponse:
        """Raises `MalformedMessage`, `NodeNotFound`, `TooManyProbes`."""
        seconds = request.timeout_seconds
        if not (math.isfinite(seconds) and 0 < seconds <= PROBE_TIMEOUT_SECONDS):
            raise MalformedMessage(
                f"timeout_seconds is {seconds}: give 0 to {PROBE_TIMEOUT_SECONDS:.0f}"
            )
        if not is_node_id(request.node_id):
            raise MalformedMessage("node_id is no SHA-256, hexadecimal in lower case")
        round_trip = await self._gossip.probe(request.node_id, seconds, _host_of(context.peer()))
        return capability_pb2.ProbePeerResponse(
            reachable=round_trip is not None, round_trip_seconds=round_trip or 0.0
        )

    async def GetNode(  # noqa: N802
        self,
        request: capability_pb2.GetNodeRequest,  # noqa: ARG002
        context: Context[  # noqa: ARG002
            capability_pb2.GetNodeRequest, capability_pb2.GetNodeResponse
        ],
    ) -> capability_pb2.GetNodeResponse:
        """The node as it is now."""
        return self._report.now()

    async def ListLimits(  # noqa: N802
        self,
        request: capability_pb2.ListLimitsRequest,  # noqa: ARG002
        context: Context[  # noqa: ARG002
            capability_pb2.ListLimitsRequest, capability_pb2.ListLimitsResponse
        ],
    ) -> capability_pb2.ListLimitsResponse:
        """Every bound, and what is taken of it."""
        return capability_pb2.ListLimitsResponse(
            limits=[use_to_wire(use) for use in self._allowances.uses()]
        )

    async def ListCodecs(  # noqa: N802
        self,
        request: capability_pb2.ListCodecsRequest,  # noqa: ARG002
        context: Context[  # noqa: ARG002
            capability_pb2.ListCodecsRequest, capability_pb2.ListCodecsResponse
        ],
    ) -> capability_pb2.ListCodecsResponse:
        """Every codec of every verifier that is served now."""
        return capability_pb2.ListCodecsResponse(codecs=self._report.codecs.lines())

    async def ResetCodecs(  # noqa: N802
        self,
        request: capability_pb2.ResetCodecsRequest,
        context: Context[capability_pb2.ResetCodecsRequest, capability_pb2.ResetCodecsResponse],
    ) -> capability_pb2.ResetCodecsResponse:
        """Forgets what was measured. Raises `NotLoopback`, `ModelNotFound`."""
        if not is_of_this_machine(context.peer()):
            raise NotLoopback("what a node measured of codecs is reset from its own machine only")
        count = await self._report.codecs.reset(request.model_id)
        return capability_pb2.ResetCodecsResponse(codec_count=count)

    async def GetSpans(  # noqa: N802
        self,
        request: capability_pb2.GetSpansRequest,
        context: Context[  # noqa: ARG002
            capability_pb2.GetSpansRequest, capability_pb2.GetSpansResponse
        ],
    ) -> capability_pb2.GetSpansResponse:
        """What was done for one request. Raises `MalformedMessage`."""
        if not 0 < len(request.request) <= MAX_REQUEST_CHARACTERS:
            raise MalformedMessage(
                f"request has {len(request.request)} characters: give the id of a trace or a "
                f"request, 1 to {MAX_REQUEST_CHARACTERS}"
            )
        own = self._known.state(self._known.self_id).card
        spans = self._node_watch.spans.of(request.request)
        return spans_to_wire(self._known.self_id, own.name if own else "", spans)

    async def WatchFleet(  # noqa: N802
        self,
        request: capability_pb2.WatchFleetRequest,
        context: Context[  # noqa: ARG002
            capability_pb2.WatchFleetRequest, capability_pb2.WatchFleetResponse
        ],
    ) -> AsyncIterator[capability_pb2.WatchFleetResponse]:
        """A snapshot, then every change. Raises `WatcherTooSlow`, `AnswerTooLarge`."""
        with self._watch.watcher() as watcher:
            backlog = Backlog(self._known.node_ids(), subject_of)
            nodes = WatchedNodes(self._known)
            async for response in snapshot_and_changes(
                watcher, backlog, nodes, in_parts=request.in_parts
            ):
                yield response

    async def WatchNode(  # noqa: N802
        self,
        request: capability_pb2.WatchNodeRequest,
        context: Context[  # noqa: ARG002
            capability_pb2.WatchNodeRequest, capability_pb2.WatchNodeResponse
        ],
    ) -> AsyncIterator[capability_pb2.WatchNodeResponse]:
        """What was, then what happens. Raises `MalformedMessage`, `WatcherTooSlow`."""
        seconds = request.history_seconds
        if not (math.isfinite(seconds) and 0 <= seconds <= KEPT_SECONDS):
            raise MalformedMessage(f"history_seconds is {seconds}: give 0 to {KEPT_SECONDS:.0f}")
        with self._node_watch.watcher() as watcher:
            yield capability_pb2.WatchNodeResponse(history=self._node_watch.history(seconds))
            while (message := await watcher.next()) is not None:
                yield message

    async def Leave(  # noqa: N802
        self,
        request: capability_pb2.LeaveRequest,
        context: Context[capability_pb2.LeaveRequest, capability_pb2.LeaveResponse],
    ) -> capability_pb2.LeaveResponse:
        """Starts the drain. Raises `NotLoopback`, `MalformedMessage`."""
        if not is_of_this_machine(context.peer()):
            raise NotLoopback("a node is asked to leave from its own machine only")
        seconds = request.drain_seconds
        if not (math.isfinite(seconds) and 0 <= seconds <= 3600):
            raise MalformedMessage(f"drain_seconds is {seconds}: give 0 to 3600")
        self._leave(seconds)
        return capability_pb2.LeaveResponse(node_id=self._known.self_id)

    def _check_exchange(self, request: capability_pb2.ExchangeCapabilitiesRequest) -> None:
        excess = beyond_limits(request, REQUEST_LIMITS)
        if excess:
            raise MalformedMessage(excess)
        if request.sender_node_id and not is_node_id(request.sender_node_id):
            raise MalformedMessage("sender_node_id is no SHA-256, hexadecimal in lower case")
        own = self._known.fleet_name
        if request.fleet_name != own:
            raise FleetMismatch(
                f"this node belongs to the fleet {own!r}, not to {request.fleet_name[:64]!r}",
                fleet_name=own,
            )
        if request.protocol_min > PROTOCOL_MAX or request.protocol_max < PROTOCOL_MIN:
            raise ProtocolSkew(
                f"this node speaks protocol {PROTOCOL_MIN} to {PROTOCOL_MAX}, "
                f"the sender {request.protocol_min} to {request.protocol_max}",
                protocol_min=str(PROTOCOL_MIN),
                protocol_max=str(PROTOCOL_MAX),
            )


def _host_of(peer: str) -> str:
    """The IP address in gRPC's name of a caller; empty for one without."""
    family, _, rest = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return ""
    return unquote(rest.rpartition(":")[0]).strip("[]")
