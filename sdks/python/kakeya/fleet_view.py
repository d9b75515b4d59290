"""The fleet as one node sees it."""

from __future__ import annotations

from kakeya import activity_wire, fleet_wire, ranges, wire
from kakeya.activity_values import NodeActivity
from kakeya.connection import Connection
from kakeya.errors import UnexpectedError
from kakeya.fleet_values import FleetEvent, FleetSnapshot, Node, NodeStatus
from kakeya.plan_values import KvStrategy, Plan, RestorerKind
from kakeya.v1 import capability_pb2, placement_pb2
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
            capability_pb2.WatchFleetRequest(),
            fleet_wire.fleet_event,
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
            activity_wire.node_activity,
        )

    async def node(self) -> Node:
        """The client's node as it sees itself. Raises TransportError."""
        response = await self._connection.unary(
            self._connection.capability.GetNode,
            capability_pb2.GetNodeRequest(),
            self._connection.timeouts.unary,
            idempotent=True,
        )
        return fleet_wire.node(response)

    async def plan(  # noqa: PLR0913 - the fields of the request, all optional but one
        self,
        verifier_model: str,
        *,
        proposer_model: str = "",
        proposer_node_id: str = "",
        verifier_node_id: str = "",
        context_tokens: int = 0,
        kv_strategy: KvStrategy | str | None = None,
        sink_tokens: int = 0,
        window_tokens: int = 0,
        block_size: int = 0,
        without_proposer: bool = False,
        restorer: RestorerKind | str | None = None,
        restorer_model: str = "",
        restorer_node_id: str = "",
    ) -> Plan:
        """The pair that a session would get, with reasons; starts nothing.

        Empty strings mean any; `context_tokens` is the longest history to plan
        for; None for `kv_strategy` and 0 for `sink_tokens`, `window_tokens` and
        `block_size` are the node's choice. Raises ModelNotFound, NoPlacement, BadRequest,
        TransportError.
        """
        request = wire.build(
            lambda: placement_pb2.PlanRequest(
                verifier_model=verifier_model,
                proposer_model=proposer_model,
                proposer_node_id=proposer_node_id,
                verifier_node_id=verifier_node_id,
                context_tokens=ranges.whole("context_tokens", context_tokens, 0),
                kv_strategy=wire.kv_strategy_number(kv_strategy),
                sink_tokens=ranges.whole("sink_tokens", sink_tokens, 0),
                window_tokens=ranges.whole("window_tokens", window_tokens, 0),
                block_size=ranges.whole("block_size", block_size, 0, ranges.MAX_DRAFTED_TOKENS),
                without_proposer=without_proposer,
                restorer=wire.restorer(restorer, restorer_model, restorer_node_id),
            )
        )
        response = await self._connection.unary(
            self._connection.placement.Plan,
            request,
            self._connection.timeouts.unary,
            idempotent=True,
        )
        return wire.plan(response.plan)

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
