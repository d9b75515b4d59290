"""The fleet as one node sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from kakeya import ranges, watch_wire
from kakeya.connection import Connection
from kakeya.enum_names import enum_number
from kakeya.errors import UnexpectedError
from kakeya.generated import wire
from kakeya.generated.values import (
    LimitUse,
    MeasuredCodec,
    Node,
    NodeSpans,
    Plan,
    RemovedModel,
    Role,
    StoredModel,
    UnloadedModel,
)
from kakeya.model_load import AsyncModelLoad
from kakeya.model_pull import AsyncModelPull
from kakeya.options import PlanOptions
from kakeya.requests import plan_request
from kakeya.v1 import capability_pb2, model_pb2, model_service_pb2
from kakeya.watch_values import FleetEvent, FleetSnapshot, NodeActivity, NodeStatus
from kakeya.watches import AsyncWatch


class AsyncFleet:
    """The fleet as the client's node sees it: `client.fleet`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def snapshot(self) -> FleetSnapshot:
        """All nodes that are known, and the fleet's name. Raises TransportError."""
        async with self.watch() as events:
            async for event in events:
                if isinstance(event, FleetSnapshot):
                    return event
        raise UnexpectedError("the node ended the watch without a snapshot")

    async def nodes(self) -> tuple[NodeStatus, ...]:
        """All nodes that are known, by name. Raises TransportError."""
        return (await self.snapshot()).nodes

    def watch(self) -> AsyncWatch[FleetEvent]:
        """A `FleetSnapshot`, then every change, until the iteration is left."""
        return AsyncWatch(
            self._connection,
            lambda: self._connection.capability.WatchFleet,
            capability_pb2.WatchFleetRequest(in_parts=True),
            watch_wire.FleetEvents(),
            watch_wire.has_more,
        )

    def watch_node(self, *, history_seconds: float = 0.0) -> AsyncWatch[NodeActivity]:
        """What the client's node does, until the iteration is left.

        A `NodeHistory` with the samples of the last `history_seconds` (at most 900)
        first; then a `NodeSample` a second, each `NodeEvent` and `Transfer` as it
        happens, and the `Node` whenever it changed. Raises BadRequest; the iteration
        WatcherTooSlow, TransportError.
        """
        seconds = ranges.number("history_seconds", history_seconds, 0, ranges.MAX_HISTORY_SECONDS)
        return AsyncWatch(
            self._connection,
            lambda: self._connection.capability.WatchNode,
            capability_pb2.WatchNodeRequest(history_seconds=seconds),
            watch_wire.node_activity,
        )

    async def node(self) -> Node:
        """The client's node as it sees itself. Raises TransportError."""
        response = await self._connection.unary(
            self._connection.capability.GetNode,
            capability_pb2.GetNodeRequest(),
            self._connection.timeouts.unary,
            idempotent=True,
        )
        return wire.node(response)

    async def limits(self) -> tuple[LimitUse, ...]:
        """What others may have of the client's node at once, and what is taken of it.

        Raises TransportError.
        """
        response = await self._connection.unary(
            self._connection.capability.ListLimits,
            capability_pb2.ListLimitsRequest(),
            self._connection.timeouts.unary,
            idempotent=True,
        )
        return tuple(wire.limit_use(each) for each in response.limits)

    async def codecs(self) -> tuple[MeasuredCodec, ...]:
        """What the client's node measured of the codecs that pack sessions of its models.

        By model, then from most bits to fewest. Raises TransportError.
        """
        response = await self._connection.unary(
            self._connection.capability.ListCodecs,
            capability_pb2.ListCodecsRequest(),
            self._connection.timeouts.unary,
            idempotent=True,
        )
        return tuple(wire.measured_codec(each) for each in response.codecs)

    async def reset_codecs(self, model: str = "") -> int:
        """Makes the client's node forget what it measured of a model's codecs, of all without one.

        Returns of how many something was known. Open sessions keep their codec. Raises
        ModelNotFound, NotLoopback, TransportError.
        """
        response = await self._connection.unary(
            self._connection.capability.ResetCodecs,
            capability_pb2.ResetCodecsRequest(model_id=model),
            self._connection.timeouts.unary,
            idempotent=True,
        )
        return response.codec_count

    async def spans(self, request: str) -> NodeSpans:
        """What the client's node did for one request, as far as it still knows.

        `request` is the id of a trace, 32 hexadecimal digits, or the `request_id` of a call.
        Raises BadRequest, TransportError.
        """
        response = await self._connection.unary(
            self._connection.capability.GetSpans,
            capability_pb2.GetSpansRequest(request=ranges.name("request", request)),
            self._connection.timeouts.unary,
            idempotent=True,
        )
        return wire.node_spans(response)

    async def plan(self, verifier_model: str, **options: Unpack[PlanOptions]) -> Plan:
        """The pair that a session would get, with reasons; starts nothing.

        Raises ModelNotFound, NoPlacement, BadRequest, TransportError.
        """
        request = plan_request(verifier_model, options)
        response = await self._connection.unary(
            self._connection.placement.Plan,
            request,
            self._connection.timeouts.unary,
            idempotent=True,
        )
        return wire.plan(response.plan)

    def load_model(
        self,
        model: str,
        *,
        role: Role | None = None,
        weights: str = "",
        unload_after_seconds: float | None = None,
    ) -> AsyncModelLoad:
        """Has the client's node serve one more model, while everything else goes on.

        `model` is what `fleet join --serve` takes: a shipped or published model, one that was
        pulled, one of the hub; a path, absolute, only from the node's own machine. `role` is
        VERIFIER unless given, or PROPOSER; `weights` are "auto", "bf16", "int8" or "int4", those
        that the node was started with unless given. After `unload_after_seconds` without a session
        it is unloaded again, with 0 never; without them the node's configuration says. A model
        that is served already is the answer at once. Raises BadRequest; the iteration
        ModelNotFound, NotLoopback, NotPermitted, Draining, another error of what cannot be
        served, TransportError.
        """
        number = enum_number("role", Role, model_pb2.Role, role)
        request = model_service_pb2.LoadModelRequest(model=model, role=number, weights=weights)
        if unload_after_seconds is not None:
            request.unload_after_seconds = ranges.number(
                "unload_after_seconds", unload_after_seconds, 0, ranges.MAX_UNLOAD_AFTER_SECONDS
            )
        return AsyncModelLoad(self._connection, request)

    async def unload_model(
        self, model: str, *, role: Role | None = None, drain_seconds: float = 5.0
    ) -> UnloadedModel:
        """Has the client's node serve a model no more; returns once its memory is free.

        `role` says which where it is served in two. Its running generations may take
        `drain_seconds` to end, at most 3,600; sessions with `resume` go on elsewhere. Raises
        ModelNotFound, ModelLoading, BadRequest, NotLoopback, NotPermitted, Draining,
        TransportError.
        """
        seconds = ranges.number("drain_seconds", drain_seconds, 0, ranges.MAX_DRAIN_SECONDS)
        response = await self._connection.unary(
            self._connection.models.UnloadModel,
            model_service_pb2.UnloadModelRequest(
                model_id=model,
                role=enum_number("role", Role, model_pb2.Role, role),
                drain_seconds=seconds,
            ),
            seconds + self._connection.timeouts.stream_idle,
        )
        return wire.unloaded_model(response)

    def pull_model(self, model: str, *, sources: Sequence[str] = ()) -> AsyncModelPull:
        """Has the client's node bring a model's files to its disk, while everything else goes on.

        From the nodes `sources`, at most 8 ids, or from all of the fleet that have it, or else
        from the hub. `model` is its name there, never a path. One that is there already is the
        answer at once. Raises BadRequest; the iteration ModelNotFound, NodeNotFound, NotLoopback,
        NotPermitted, Draining, KakeyaError with MODEL_NOT_COPIED, MODEL_CACHE_UNWRITABLE or
        MODEL_IN_USE, TransportError.
        """
        request = model_service_pb2.PullModelRequest(model=model, source_node_ids=sources)
        return AsyncModelPull(self._connection, request)

    async def remove_model(self, model: str) -> RemovedModel:
        """Removes from the disk of the client's node what a pull brought; one that runs ends.

        Raises NotFound with MODEL_NOT_KEPT for what no pull brought, FailedPrecondition with
        MODEL_IN_USE for what is served or loaded, BadRequest, NotLoopback, NotPermitted,
        TransportError.
        """
        response = await self._connection.unary(
            self._connection.models.RemoveModel,
            model_service_pb2.RemoveModelRequest(model_id=model),
            self._connection.timeouts.unary + self._connection.timeouts.stream_idle,
        )
        return wire.removed_model(response)

    async def stored_models(self) -> tuple[StoredModel, ...]:
        """What pulls brought to the disk of the client's node, by name. Raises TransportError."""
        response = await self._connection.unary(
            self._connection.models.ListModels,
            model_service_pb2.ListModelsRequest(),
            self._connection.timeouts.unary,
            idempotent=True,
        )
        return tuple(wire.stored_model(each) for each in response.models)

    async def leave(self, drain_seconds: float = 5.0) -> str:
        """Makes the client's node leave the fleet; returns its id.

        Running generations may take `drain_seconds` to end, at most 3,600. Raises
        BadRequest, NotLoopback, TransportError.
        """
        seconds = ranges.number("drain_seconds", drain_seconds, 0, ranges.MAX_DRAIN_SECONDS)
        response = await self._connection.unary(
            self._connection.capability.Leave,
            capability_pb2.LeaveRequest(drain_seconds=seconds),
            self._connection.timeouts.unary,
        )
        return response.node_id
