"""All open ends of tensor links of one node, and how its own are opened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import grpc.aio

from kakeya.v1 import capability_pb2, placement_pb2, tensor_pb2_grpc
from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.ends.control_stream import ControlStream
from kakeya_fleet.node.links.ends.link_end import LinkEnd, LinkIdentity, LinkParts, LinkUse
from kakeya_fleet.node.links.protocol.changes import LinkChange
from kakeya_fleet.node.links.protocol.contract import LinkClosed, LinkMode, RoadKind
from kakeya_fleet.node.links.protocol.opening import EncoderDescription, LinkRequest
from kakeya_fleet.node.links.protocol.promotion_state import permitted
from kakeya_fleet.node.links.protocol.settings import LinkSettings
from kakeya_fleet.node.links.roads.contract import RoadBuilder
from kakeya_fleet.node.links.transport.grpc_streams import CallerStream
from kakeya_fleet.node.links.transport.wire import (
    TRANSPORTS,
    encoder_from_wire,
    kinds_from_wire,
    request_to_wire,
    status_to_wire,
)
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.trace_context import outgoing

if TYPE_CHECKING:
    from kakeya_fleet.node.links.transport.grpc_streams import StreamCall

# Just below the largest buffer that glibc takes as an example.
_EXAMPLE_BYTES = 31 << 20


def _ignore(_change: LinkChange) -> None:
    return


@dataclass(frozen=True, slots=True)
class OpenedLink:
    """The caller's end of a new link, and the encoder whose vectors the other node takes."""

    end: LinkEnd
    encoder: EncoderDescription | None


class OpenLinks:
    """Belongs to one event loop's thread."""

    def __init__(
        self,
        builders: Sequence[RoadBuilder] = (),
        metrics: NodeMetrics | None = None,
        *,
        mode: LinkMode = LinkMode.AUTO,
        settings: LinkSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[LinkChange], None] = _ignore,
    ) -> None:
        """`builders` are for the roads that this node may have, best first.

        `on_change` hears of each change of what carries any of the links; raises nothing.
        """
        self._builders = tuple(builders)
        self._metrics = metrics if metrics is not None else NodeMetrics()
        self._mode = mode
        self._settings = settings if settings is not None else LinkSettings()
        self._clock = clock
        self._on_change = on_change
        self._ends: set[LinkEnd] = set()
        self._ended_bytes = 0

    @property
    def byte_count(self) -> int:
        """Bytes of tensors that links carried, either way, ended ones too."""
        return self._ended_bytes + sum(end.state.byte_count for end in self._ends)

    def __len__(self) -> int:
        return len(self._ends)

    def transports(self) -> list[placement_pb2.Transport.ValueType]:
        """What this node can use, best first; gRPC is the last.

        With what it has not now: a host may be found able to form a ring while a link
        is open. Who proposes a road, and who answers, asks then.
        """
        roads = [TRANSPORTS[builder.kind] for builder in self._permitted()]
        return [*roads, placement_pb2.TRANSPORT_GRPC]

    async def open(
        self,
        channel: grpc.aio.Channel,
        request: LinkRequest,
        *,
        peer_node_id: str,
        timeout: float,
        use: LinkUse | None = None,
        want_encoder: bool = False,
    ) -> OpenedLink:
        """A link to the node at the other end of `channel`, which stays the caller's.

        Raises what the calls do, `grpc.aio.AioRpcError` and `grpc.aio.UsageError`, and
        `LinkClosed` when it does not open within `timeout` seconds or its channel is closed
        meanwhile.
        """
        asked = request_to_wire(request, self.transports())
        try:
            async with asyncio.timeout(timeout):
                call, response = await _called(channel, asked, timeout, want_encoder=want_encoder)
        except TimeoutError as error:
            raise LinkClosed(f"it did not open within {timeout:g} s") from error
        except asyncio.CancelledError:
            # gRPC cancels who waits when the channel is closed.
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise LinkClosed("the channel was closed") from None
        identity = LinkIdentity(response.link_id, peer_node_id, request.purpose, is_caller=True)
        kinds = kinds_from_wire(response.transports)
        end = self.end(CallerStream(call), identity, kinds, use if use is not None else LinkUse())
        has_encoder = response.HasField("encoder")
        return OpenedLink(end, encoder_from_wire(response.encoder) if has_encoder else None)

    def end(
        self,
        stream: ControlStream,
        identity: LinkIdentity,
        kinds: Collection[RoadKind],
        use: LinkUse,
    ) -> LinkEnd:
        """An end over a stream, to a node that has `kinds` of roads."""
        _keep_freed_buffers()
        end = LinkEnd(
            stream,
            identity,
            LinkParts(
                metrics=self._metrics,
                mode=self._mode,
                builders=[builder for builder in self._permitted() if builder.kind in kinds],
                settings=self._settings,
                use=replace(use, on_change=partial(self._changed, use.on_change)),
                clock=self._clock,
                on_end=self._ended,
            ),
        )
        self._ends.add(end)
        return end

    def statuses(self) -> list[capability_pb2.TensorLinkStatus]:
        """The links that are open, for GetNode."""
        now = self._clock()
        return [
            status_to_wire(
                end.state, end.purpose, end.peer_node_id, is_caller=end.is_caller, now=now
            )
            for end in self._ends
            if not end.ended.is_set()
        ]

    def look_again(self) -> None:
        """A builder is available that was not: links that are open may have its roads."""
        for end in tuple(self._ends):
            end.look_again()

    async def close(self) -> None:
        """Ends every link."""
        if self._ends:
            await asyncio.gather(*(end.close() for end in tuple(self._ends)))

    def _changed(self, also: Callable[[LinkChange], None], change: LinkChange) -> None:
        also(change)
        self._on_change(change)

    def _ended(self, end: LinkEnd) -> None:
        if end in self._ends:
            self._ends.discard(end)
            self._ended_bytes += end.state.byte_count

    def _permitted(self) -> list[RoadBuilder]:
        allowed = permitted(self._mode, [builder.kind for builder in self._builders])
        return [builder for builder in self._builders if builder.kind in allowed]


async def _called(
    channel: grpc.aio.Channel,
    request: wire.OpenLinkRequest,
    timeout: float,
    *,
    want_encoder: bool,
) -> tuple[StreamCall, wire.OpenLinkResponse]:
    stub = tensor_pb2_grpc.TensorServiceStub(channel)
    response = await stub.OpenLink(request, timeout=timeout, metadata=outgoing())
    call = stub.StreamTensors(metadata=outgoing())
    opening = wire.StreamOpening(link_id=response.link_id, want_encoder=want_encoder)
    try:
        await call.write(wire.StreamTensorsRequest(opening=opening))
    except BaseException:
        call.cancel()
        raise
    return call, response


@cache
def _keep_freed_buffers() -> None:
    """The C library keeps the memory of freed buffers for the next chunks, 62 MiB at most.

    glibc gives a freed buffer beyond its threshold back to the system, which then hands out
    each chunk's memory page by page, and zeroed: half the pace of a link of 1 MiB chunks. The
    threshold rises to the size of the largest buffer that was freed, up to 32 MiB, and that
    from which free memory is given back to twice that (mallopt(3), M_MMAP_THRESHOLD).
    """
    # Zeros that nobody reads take no memory.
    bytes(_EXAMPLE_BYTES)
