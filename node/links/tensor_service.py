"""TensorService: the links that this node serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import grpc.aio
import numpy as np
from numpy.typing import NDArray

from kakeya.v1 import placement_pb2, tensor_pb2_grpc
from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.engine.contracts.feature_encoder import EncoderWeights
from kakeya_fleet.engine.errors import BadParameters, TrainedForAnother
from kakeya_fleet.fleet.errors import ModelNotFound
from kakeya_fleet.node.links.contract import LinkClosed
from kakeya_fleet.node.links.feature_inbox import FeatureInbox
from kakeya_fleet.node.links.grpc_streams import ServicerStream
from kakeya_fleet.node.links.link_end import LinkEnd, LinkIdentity
from kakeya_fleet.node.links.link_handler import LinkHandler
from kakeya_fleet.node.links.link_limits import LinkLimits
from kakeya_fleet.node.links.link_table import Link, LinkTable
from kakeya_fleet.node.links.open_links import LinkUse, OpenLinks, purpose_of
from kakeya_fleet.node.links.wire_tensor import WireTensor, from_buffer
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.refusals import Draining, LinkNotFound, LinkUnsupported

if TYPE_CHECKING:
    from typing import TypeAlias

    StreamContext: TypeAlias = grpc.aio.ServicerContext[
        wire.StreamTensorsRequest, wire.StreamTensorsResponse
    ]

FC = "fc.weight"
HIDDEN_NORM = "hidden_norm.weight"
# A stream that says nothing must not stay.
OPENING_SECONDS = 10.0
# What a handler gets to end by itself once its link has ended.
HANDLER_SECONDS = 1.0
# One answer does for the deltas of several blocks.
TAKEN_DELAY_SECONDS = 0.05
MAX_NODE_ID_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class ConditionedProposer:
    """What a link needs to know of a proposer that takes context vectors.

    `target_weights_digest` is empty for one that drafts for every verifier.
    """

    weights: EncoderWeights
    hidden_size: int
    target_weights_digest: str


class TensorServicer(tensor_pb2_grpc.TensorServiceServicer):
    """Serves links: those for features itself, those of other purposes by their handlers."""

    def __init__(
        self,
        proposers: Mapping[str, ConditionedProposer],
        table: LinkTable,
        metrics: NodeMetrics,
        links: OpenLinks | None = None,
        handlers: Mapping[wire.LinkPurpose.ValueType, LinkHandler] | None = None,
    ) -> None:
        """`proposers` by model id; the links of `table` are opened and closed here.

        The ends that serve them are among `links`. A purpose without a handler is
        answered with LINK_UNSUPPORTED.
        """
        self._proposers = proposers
        self._table = table
        self._metrics = metrics
        self._links = links if links is not None else OpenLinks(metrics=metrics)
        self._handlers = handlers if handlers is not None else {}
        self._draining = False

    def drain(self) -> None:
        """Refuses new links and ends the open ones."""
        self._draining = True
        self._table.close_all("ended: this node is leaving the fleet")

    async def OpenLink(  # noqa: N802
        self,
        request: wire.OpenLinkRequest,
        _context: grpc.aio.ServicerContext[wire.OpenLinkRequest, wire.OpenLinkResponse],
    ) -> wire.OpenLinkResponse:
        """A link for one session."""
        self._refuse_when_draining()
        self._check_supported(request)
        encoder = None
        if request.purpose == wire.LINK_PURPOSE_FEATURES:
            proposer = self._proposer(request)
            encoder = _described(proposer)
            link = self._table.open_for(request, FeatureInbox(encoder.width))
        else:
            limits = self._handlers[request.purpose].check(request)
            link = self._table.open_for(request, None, limits.budget_bytes)
            link.limits = limits
        self._metrics.links_opened.inc()
        self._metrics.links_active.set(len(self._table))
        return wire.OpenLinkResponse(
            link_id=link.link_id,
            transport=placement_pb2.TRANSPORT_GRPC,
            encoder=encoder,
            transports=self._links.transports(),
        )

    # grpc.aio takes a coroutine that writes as well as a generator, and a
    # cancelled coroutine cleans up at once.
    async def StreamTensors(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[wire.StreamTensorsRequest], context: StreamContext
    ) -> None:
        """One link's tensors, until the caller leaves or the link ends."""
        self._refuse_when_draining()
        opening = await _opening(request_iterator)
        link = self._table.find(opening.link_id)
        if link is None:
            raise _unknown(opening.link_id)
        if link.is_streaming:
            raise BadParameters("this link has a stream already", field="link_id")
        link.is_streaming = True
        end = None
        try:
            await context.send_initial_metadata(())
            end = self._end(link, ServicerStream(request_iterator, context))
            await self._serve(link, end, want_encoder=opening.want_encoder)
        finally:
            if end is not None:
                await end.close()
            self._close(link.link_id)

    async def CloseLink(  # noqa: N802
        self,
        request: wire.CloseLinkRequest,
        _context: grpc.aio.ServicerContext[wire.CloseLinkRequest, wire.CloseLinkResponse],
    ) -> wire.CloseLinkResponse:
        """Ends a link, and its stream with it."""
        self._close(request.link_id)
        return wire.CloseLinkResponse()

    def sweep(self) -> None:
        """Ends idle links."""
        self._table.sweep()
        self._metrics.links_active.set(len(self._table))

    def _close(self, link_id: str) -> None:
        self._table.close(link_id, "closed")
        self._metrics.links_active.set(len(self._table))

    def _end(self, link: Link, stream: ServicerStream) -> LinkEnd:
        request, inbox = link.request, link.inbox
        limits = link.limits
        if inbox is not None:
            limits = LinkLimits(
                most_tensor_bytes=inbox.tensor_bytes, taken_delay_seconds=TAKEN_DELAY_SECONDS
            )
        identity = LinkIdentity(
            link.link_id,
            request.sender_node_id[:MAX_NODE_ID_CHARACTERS],
            purpose_of(request.purpose),
            is_caller=False,
        )
        use = LinkUse(
            limits=limits,
            take=inbox.take if inbox is not None else None,
            on_message=partial(self._used, link.link_id),
        )
        return self._links.end(stream, identity, request.transports, use)

    def _used(self, link_id: str) -> None:
        self._table.find(link_id)

    async def _serve(self, link: Link, end: LinkEnd, *, want_encoder: bool) -> None:
        """Serves a link to its end. Raises what it ended with, and `LinkNotFound`.

        That is, when the table ended it meanwhile.
        """
        work = self._send_encoder(link, end) if want_encoder else self._handle(link, end)
        serving = asyncio.create_task(work, name="link-serve")
        ending = asyncio.create_task(link.ended.wait(), name="link-ended")
        ended = asyncio.create_task(end.ended.wait(), name="link-end-ended")
        try:
            await asyncio.wait((serving, ending, ended), return_when=asyncio.FIRST_COMPLETED)
            if end.ended.is_set():
                # It learns of the end from the link.
                await asyncio.wait((serving,), timeout=HANDLER_SECONDS)
        finally:
            for task in (serving, ending, ended):
                task.cancel()
            await asyncio.wait((serving, ending, ended))
        if end.error is not None:
            raise end.error
        if link.ended.is_set():
            raise LinkNotFound(f"the link was {link.end_reason}", link_id=link.link_id)
        if not serving.cancelled():
            with suppress(LinkClosed):
                serving.result()

    async def _send_encoder(self, link: Link, end: LinkEnd) -> None:
        if link.inbox is not None:
            weights = self._proposers[link.request.model_id].weights
            for name, values in ((FC, weights.fc), (HIDDEN_NORM, weights.norm)):
                await end.send(weights_tensor(name, values))
        await self._handle(link, end)

    async def _handle(self, link: Link, end: LinkEnd) -> None:
        if link.inbox is not None:
            # The inbox takes what comes.
            await end.ended.wait()
        else:
            await self._handlers[link.request.purpose].serve(end, link.request)

    def _proposer(self, request: wire.OpenLinkRequest) -> ConditionedProposer:
        proposer = self._proposers.get(request.model_id)
        if proposer is None:
            known = ", ".join(sorted(self._proposers)) or "none"
            raise ModelNotFound(
                f"no proposer {request.model_id[:64]!r} that takes features is served here; "
                f"served: {known}",
                model_id=request.model_id[:64],
                served=known,
            )
        wanted, given = proposer.target_weights_digest, request.verifier_weights_digest
        if wanted and given and wanted != given:
            raise TrainedForAnother(
                f"{request.model_id} was made for the verifier with weights {wanted[:12]}, "
                f"not {given[:12]}",
                target_weights_digest=wanted,
                verifier_weights_digest=given[:64],
            )
        return proposer

    def _check_supported(self, request: wire.OpenLinkRequest) -> None:
        purpose = request.purpose
        if purpose == wire.LINK_PURPOSE_UNSPECIFIED:
            raise BadParameters("purpose is not given", field="purpose")
        if purpose != wire.LINK_PURPOSE_FEATURES and purpose not in self._handlers:
            raise LinkUnsupported(f"this node opens no links for purpose {purpose}")
        if request.transports and placement_pb2.TRANSPORT_GRPC not in request.transports:
            raise LinkUnsupported("a link opens over gRPC, whatever carries it later")

    def _refuse_when_draining(self) -> None:
        if self._draining:
            raise Draining("this node is leaving the fleet; ask another proposer")


def weights_tensor(name: str, values: NDArray[np.float32]) -> WireTensor:
    """Weights as they lie: a copy of them for each who asks would fill the memory."""
    plain = np.ascontiguousarray(values, "<f4")
    return from_buffer(name, "float32", plain.shape, plain.data)


async def _opening(requests: AsyncIterator[wire.StreamTensorsRequest]) -> wire.StreamOpening:
    """The first message. Raises `BadParameters` when it is none or does not come."""
    try:
        async with asyncio.timeout(OPENING_SECONDS):
            first = await anext(requests, None)
    except TimeoutError:
        first = None
    if first is None or not first.HasField("opening") or first.HasField("chunk"):
        raise BadParameters(
            f"a stream of tensors begins with opening, within {OPENING_SECONDS:g} s",
            field="opening",
        )
    return first.opening


def _described(proposer: ConditionedProposer) -> wire.EncoderDescription:
    weights = proposer.weights
    return wire.EncoderDescription(
        digest=weights.digest,
        tapped_layers=weights.taps,
        hidden_size=proposer.hidden_size,
        width=weights.fc.shape[0],
        eps=weights.eps,
    )


def _unknown(link_id: str) -> LinkNotFound:
    return LinkNotFound(
        f"no link {link_id[:64]!r} is open here; open a new one", link_id=link_id[:64]
    )
