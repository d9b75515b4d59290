"""TensorService: context features to this node's proposers, over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc.aio

from engine.errors import BadParameters, TrainedForAnother
from engine.feature_encoder import EncoderWeights
from fleet.errors import ModelNotFound
from kakeya.v1 import placement_pb2, tensor_pb2_grpc
from kakeya.v1 import tensor_pb2 as wire
from node.links.link_table import Link, LinkTable
from node.links.refused_tensor import RefusedTensor, TensorFault
from node.links.tensor_chunks import TensorAssembler, chunks_of
from node.links.wire_tensor import from_floats
from node.metrics import NodeMetrics
from node.rpc.refusals import Draining, LinkNotFound, LinkUnsupported, TensorOutOfOrder

if TYPE_CHECKING:
    from typing import TypeAlias

    StreamContext: TypeAlias = grpc.aio.ServicerContext[
        wire.StreamTensorsRequest, wire.StreamTensorsResponse
    ]

FC = "fc.weight"
HIDDEN_NORM = "hidden_norm.weight"
# A stream that says nothing must not stay.
OPENING_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ConditionedProposer:
    """What a link needs to know of a proposer that takes context vectors.

    `target_weights_digest` is empty for one that drafts for every verifier.
    """

    weights: EncoderWeights
    hidden_size: int
    target_weights_digest: str


class TensorServicer(tensor_pb2_grpc.TensorServiceServicer):
    """Serves links for features; answers every other purpose with LINK_UNSUPPORTED."""

    def __init__(
        self,
        proposers: Mapping[str, ConditionedProposer],
        table: LinkTable,
        metrics: NodeMetrics,
    ) -> None:
        """`proposers` by model id; the links of `table` are opened and closed here."""
        self._proposers = proposers
        self._table = table
        self._metrics = metrics
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
        """A link for the context vectors of one session."""
        self._refuse_when_draining()
        _check_supported(request)
        proposer = self._proposer(request)
        weights = proposer.weights
        link = self._table.open(request.sender_node_id[:64], request.model_id, weights.fc.shape[0])
        self._metrics.links_opened.inc()
        self._metrics.links_active.set(len(self._table))
        return wire.OpenLinkResponse(
            link_id=link.link_id,
            transport=placement_pb2.TRANSPORT_GRPC,
            encoder=wire.EncoderDescription(
                digest=weights.digest,
                tapped_layers=weights.taps,
                hidden_size=proposer.hidden_size,
                width=weights.fc.shape[0],
                eps=weights.eps,
            ),
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
        try:
            await context.send_initial_metadata(())
            if opening.want_encoder:
                await self._send_encoder(link, context)
            await self._receive(request_iterator, link)
        finally:
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

    async def _send_encoder(self, link: Link, context: StreamContext) -> None:
        weights = self._proposers[link.model_id].weights
        tensors = (from_floats(FC, weights.fc), from_floats(HIDDEN_NORM, weights.norm))
        for tensor_id, tensor in enumerate(tensors, start=1):
            for chunk in chunks_of(tensor, link.link_id, tensor_id):
                await context.write(wire.StreamTensorsResponse(chunk=chunk))

    async def _receive(
        self, requests: AsyncIterator[wire.StreamTensorsRequest], link: Link
    ) -> None:
        """Takes what arrives; raises `LinkNotFound` when the link is ended meanwhile."""
        reading = asyncio.create_task(self._read(requests, link), name="link-read")
        ending = asyncio.create_task(link.ended.wait(), name="link-end")
        try:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, ending):
                task.cancel()
            await asyncio.wait((reading, ending))
        if not reading.cancelled():
            # Raises what is wrong with the chunks.
            reading.result()
            return
        raise LinkNotFound(f"the link was {link.end_reason}", link_id=link.link_id)

    async def _read(self, requests: AsyncIterator[wire.StreamTensorsRequest], link: Link) -> None:
        assembler = TensorAssembler(link.link_id, link.inbox.tensor_bytes)
        async for request in requests:
            if not request.HasField("chunk"):
                raise BadParameters("a stream of tensors takes chunks after its opening")
            self._table.find(link.link_id)
            self._metrics.link_bytes.inc(len(request.chunk.data))
            try:
                tensor = assembler.add(request.chunk)
                if tensor is not None:
                    link.inbox.take(tensor)
            except RefusedTensor as refused:
                self._metrics.tensors_refused.labels(fault=refused.fault.value).inc()
            except TensorOutOfOrder:
                fault = TensorFault.OUT_OF_ORDER
                self._metrics.tensors_refused.labels(fault=fault.value).inc()
                raise

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

    def _refuse_when_draining(self) -> None:
        if self._draining:
            raise Draining("this node is leaving the fleet; ask another proposer")


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


def _check_supported(request: wire.OpenLinkRequest) -> None:
    if request.purpose == wire.LINK_PURPOSE_UNSPECIFIED:
        raise BadParameters("purpose is not given", field="purpose")
    if request.purpose != wire.LINK_PURPOSE_FEATURES:
        raise LinkUnsupported(
            f"this version opens links for features alone, not for purpose {request.purpose}"
        )
    if request.transports and placement_pb2.TRANSPORT_GRPC not in request.transports:
        raise LinkUnsupported("this version opens links over gRPC alone")


def _unknown(link_id: str) -> LinkNotFound:
    return LinkNotFound(
        f"no link {link_id[:64]!r} is open here; open a new one", link_id=link_id[:64]
    )
