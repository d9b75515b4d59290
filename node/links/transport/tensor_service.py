"""TensorService: the links that this node serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import grpc.aio

from kakeya.v1 import placement_pb2, tensor_pb2_grpc
from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.node.links.ends.link_end import LinkEnd, LinkIdentity, LinkUse
from kakeya_fleet.node.links.protocol.contract import LinkClosed, LinkPurpose
from kakeya_fleet.node.links.protocol.opening import LinkRequest
from kakeya_fleet.node.links.transport.grpc_streams import ServicerStream
from kakeya_fleet.node.links.transport.link_service import LinkHandler
from kakeya_fleet.node.links.transport.link_table import Link, LinkTable
from kakeya_fleet.node.links.transport.open_links import OpenLinks
from kakeya_fleet.node.links.transport.wire import (
    encoder_to_wire,
    kinds_from_wire,
    request_from_wire,
)
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.authorisation import calling_member, require_sender
from kakeya_fleet.node.rpc.calling import calling_of
from kakeya_fleet.node.rpc.refusals import Draining, LinkNotFound, LinkUnsupported

if TYPE_CHECKING:
    from kakeya_fleet.node.links.transport.grpc_streams import StreamContext

MAX_NODE_ID_CHARACTERS = 64


class TensorServicer(tensor_pb2_grpc.TensorServiceServicer):
    """Serves links, each by the handler of its purpose."""

    def __init__(
        self,
        table: LinkTable,
        metrics: NodeMetrics,
        links: OpenLinks,
        handlers: Mapping[LinkPurpose, LinkHandler],
    ) -> None:
        """The links of `table` are opened and closed here; the ends that serve are of `links`.

        A purpose without a handler is answered with LINK_UNSUPPORTED.
        """
        self._table = table
        self._metrics = metrics
        self._links = links
        self._handlers = handlers
        self._draining = False

    def drain(self) -> None:
        """Refuses new links and ends the open ones."""
        self._draining = True
        self._table.close_all("ended: this node is leaving the fleet")

    async def OpenLink(  # noqa: N802
        self,
        request: wire.OpenLinkRequest,
        context: grpc.aio.ServicerContext[wire.OpenLinkRequest, wire.OpenLinkResponse],
    ) -> wire.OpenLinkResponse:
        """A link for one session. Raises `BadCertificate` for one in another member's name."""
        self._refuse_when_draining()
        asked = self._supported(request)
        if calling_member.get():
            require_sender(asked.sender_node_id or "nobody")
        service = self._handlers[asked.purpose].open(asked)
        caller = calling_of(context).caller
        link = self._table.open(asked, service, kinds_from_wire(request.transports), caller)
        self._metrics.links_opened.inc()
        self._metrics.links_active.set(len(self._table))
        return wire.OpenLinkResponse(
            link_id=link.link_id,
            transport=placement_pb2.TRANSPORT_GRPC,
            encoder=encoder_to_wire(service.encoder) if service.encoder is not None else None,
            transports=self._links.transports(),
        )

    # grpc.aio takes a coroutine that writes as well as a generator, and a
    # cancelled coroutine cleans up at once.
    async def StreamTensors(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[wire.StreamTensorsRequest], context: StreamContext
    ) -> None:
        """One link's tensors, until the caller leaves or the link ends."""
        self._refuse_when_draining()
        opening = await _opening(request_iterator, self._table.settings.opening_seconds)
        link = self._table.find(opening.link_id)
        if link is None or not _is_callers(link):
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
        link = self._table.find(request.link_id)
        if link is not None and _is_callers(link):
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
        identity = LinkIdentity(
            link.link_id,
            link.request.sender_node_id,
            link.request.purpose,
            is_caller=False,
        )
        use = LinkUse(
            limits=link.service.limits,
            take=link.service.take,
            on_message=partial(self._used, link.link_id),
        )
        return self._links.end(stream, identity, link.kinds, use)

    def _used(self, link_id: str) -> None:
        self._table.find(link_id)

    async def _serve(self, link: Link, end: LinkEnd, *, want_encoder: bool) -> None:
        """Serves a link to its end. Raises what it ended with, and `LinkNotFound`.

        That is, when the table ended it meanwhile.
        """
        serving = asyncio.create_task(link.service.serve(end, want_encoder), name="link-serve")
        ending = asyncio.create_task(link.ended.wait(), name="link-ended")
        ended = asyncio.create_task(end.ended.wait(), name="link-end-ended")
        try:
            await asyncio.wait((serving, ending, ended), return_when=asyncio.FIRST_COMPLETED)
            if end.ended.is_set():
                # It learns of the end from the link.
                await asyncio.wait((serving,), timeout=self._table.settings.handler_seconds)
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

    def _supported(self, request: wire.OpenLinkRequest) -> LinkRequest:
        """The request, if there is a handler for it. Raises `BadParameters`, `LinkUnsupported`."""
        if request.purpose == wire.LINK_PURPOSE_UNSPECIFIED:
            raise BadParameters("purpose is not given", field="purpose")
        sender = request.sender_node_id
        if len(sender) > MAX_NODE_ID_CHARACTERS or not sender.isprintable():
            # It is shown by those who look at the link.
            raise BadParameters(
                f"sender_node_id {sender[:MAX_NODE_ID_CHARACTERS]!r} is longer than"
                f" {MAX_NODE_ID_CHARACTERS} characters, or not printable",
                field="sender_node_id",
            )
        asked = request_from_wire(request)
        if asked is None or asked.purpose not in self._handlers:
            raise LinkUnsupported(f"this node opens no links for purpose {request.purpose}")
        if request.transports and placement_pb2.TRANSPORT_GRPC not in request.transports:
            raise LinkUnsupported("a link opens over gRPC, whatever carries it later")
        return asked

    def _refuse_when_draining(self) -> None:
        if self._draining:
            raise Draining("this node is leaving the fleet; ask another proposer")


def _is_callers(link: Link) -> bool:
    """Whether the calling member opened it; in a fleet without an authority whoever has its id."""
    member = calling_member.get()
    return not member or member == link.request.sender_node_id


async def _opening(
    requests: AsyncIterator[wire.StreamTensorsRequest], seconds: float
) -> wire.StreamOpening:
    """The first message. Raises `BadParameters` when it is none or does not come in time."""
    try:
        async with asyncio.timeout(seconds):
            first = await anext(requests, None)
    except TimeoutError:
        first = None
    if first is None or not first.HasField("opening") or first.HasField("chunk"):
        raise BadParameters(
            f"a stream of tensors begins with opening, within {seconds:g} s", field="opening"
        )
    return first.opening


def _unknown(link_id: str) -> LinkNotFound:
    return LinkNotFound(
        f"no link {link_id[:64]!r} is open here; open a new one", link_id=link_id[:64]
    )
