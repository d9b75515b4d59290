"""PlacementService: the planner, over the wire."""

from __future__ import annotations

import grpc.aio

from kakeya.v1 import placement_pb2 as wire
from kakeya.v1 import placement_pb2_grpc
from kakeya_fleet.node.planning.plan_wire import Packings, plan_request_from_wire, plan_to_wire
from kakeya_fleet.node.planning.planner import Planner


class PlacementServicer(placement_pb2_grpc.PlacementServiceServicer):
    """Answers with a dry run: it starts nothing."""

    def __init__(self, planner: Planner, packings: Packings) -> None:
        self._planner = planner
        self._packings = packings

    async def Plan(  # noqa: N802
        self,
        request: wire.PlanRequest,
        _context: grpc.aio.ServicerContext[wire.PlanRequest, wire.PlanResponse],
    ) -> wire.PlanResponse:
        """The pair with the highest predicted speed, and why not the others."""
        plan = await self._planner.plan(plan_request_from_wire(request, self._packings))
        return wire.PlanResponse(plan=plan_to_wire(plan))
