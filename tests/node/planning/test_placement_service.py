"""Plans over the wire, and sessions where they were planned."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from kakeya.v1 import (
    capability_pb2,
    placement_pb2,
    placement_pb2_grpc,
    runtime_pb2,
)
from kakeya_fleet.engine.errors import DraftFaultKind
from kakeya_fleet.engine.speculation.breaker import Breaker
from kakeya_fleet.fleet.cards.card import ArchiveOffer
from kakeya_fleet.fleet.cards.liveness import Liveness
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.neighbourhood import Node
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")


class SelfReport:
    """GetNode of a verifier's node; a silent one never answers."""

    def __init__(
        self, response: capability_pb2.GetNodeResponse, *, is_silent: bool = False
    ) -> None:
        self.response = response
        self._is_silent = is_silent
        self.asked = 0

    async def answer(
        self, _request: capability_pb2.GetNodeRequest, _context: object
    ) -> capability_pb2.GetNodeResponse:
        self.asked += 1
        if self._is_silent:
            await asyncio.Event().wait()
        return self.response

    def add_to(self, server: grpc.aio.Server) -> None:
        """Adds the service, whose other methods nobody implements."""
        handler = grpc.unary_unary_rpc_method_handler(
            self.answer,
            request_deserializer=capability_pb2.GetNodeRequest.FromString,
            response_serializer=capability_pb2.GetNodeResponse.SerializeToString,
        )
        service = grpc.method_handlers_generic_handler(
            "kakeya.v1.CapabilityService", {"GetNode": handler}
        )
        server.add_generic_rpc_handlers((service,))


Faraway = Callable[[SelfReport], Awaitable[None]]


async def plan_of(node: Node, **fields: Any) -> placement_pb2.Plan:
    stub = placement_pb2_grpc.PlacementServiceStub(node.channel)
    request = placement_pb2.PlanRequest(**{"verifier_model": "random", **fields})
    return (await stub.Plan(request, timeout=PATIENCE_SECONDS)).plan


def reasons(
    plan: placement_pb2.Plan,
) -> dict[tuple[str, str], placement_pb2.RejectionReason.ValueType]:
    return {
        (rejection.proposer.node_id, rejection.proposer.model_id): rejection.reason
        for rejection in plan.rejections
    }


@pytest_asyncio.fixture(loop_scope="module")
async def faraway(
    neighbourhood: nodes.Neighbourhood, verifier: nodes.Node
) -> AsyncIterator[Faraway]:
    """faraway(report): a node with the verifier's card, which answers GetNode alone."""
    servers = []

    async def start(report: SelfReport) -> None:
        server = grpc.aio.server()
        report.add_to(server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        offer = replace(verifier.roles.offers()[0], model_id="faraway")
        await neighbourhood.directory.put("faraway", f"127.0.0.1:{port}", (offer,))

    yield start
    for server in servers:
        await server.stop(0)
    neighbourhood.directory.views.pop("faraway", None)


async def test_the_own_verifier_is_paired_with_the_proposer_next_door(
    verifier: nodes.Node, proposer: nodes.Node
) -> None:
    plan = await plan_of(verifier, context_tokens=1000)
    assert plan.verifier.node_id == "verifier"
    assert plan.verifier.address == verifier.address
    assert plan.predicted_alone_tokens_per_second > 0
    assert plan.kv_bytes > 0
    assert plan.reasons
    if plan.HasField("proposer"):
        assert plan.proposer.node_id == "proposer"
        assert plan.transport == placement_pb2.TRANSPORT_GRPC
        assert 1 <= plan.block_size <= 31
    else:
        assert ("proposer", "ngram") in reasons(plan)


async def test_archives_are_placed_by_what_they_have_free_now_and_by_what_layers_waited(
    neighbourhood: nodes.Neighbourhood, proposer: nodes.Node, faraway: Faraway
) -> None:
    offer = ArchiveOffer(1 << 40, 1 << 40, 7001, "torch")
    await faraway(
        SelfReport(
            capability_pb2.GetNodeResponse(
                links=[
                    capability_pb2.PeerLink(node_id="roomy", round_trip_seconds=0.9),
                    capability_pb2.PeerLink(
                        node_id="full", round_trip_seconds=0.001, archive_wait_seconds=0.0001
                    ),
                    capability_pb2.PeerLink(
                        node_id="roomy", round_trip_seconds=0.9, archive_wait_seconds=0.002
                    ),
                ]
            )
        )
    )
    servers = []
    for name, used in (("full", (1 << 40) - 10), ("roomy", 1)):
        load = capability_pb2.NodeLoad(archive_budget_bytes=1 << 40, archive_bytes=used)
        server = grpc.aio.server()
        report = SelfReport(capability_pb2.GetNodeResponse(load=load))
        report.add_to(server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        await neighbourhood.directory.put(name, f"127.0.0.1:{port}", (), archive=offer)
    restored = {
        "verifier_model": "faraway",
        "without_proposer": True,
        "context_tokens": 2000,
        "window_tokens": 64,
        "kv_strategy": placement_pb2.KV_STRATEGY_RESTORED,
    }
    try:
        plan = await plan_of(proposer, **restored)
        window = await plan_of(
            proposer, **{**restored, "kv_strategy": placement_pb2.KV_STRATEGY_SINK_WINDOW}
        )
    finally:
        for server in servers:
            await server.stop(0)
        for name in ("full", "roomy"):
            neighbourhood.directory.views.pop(name, None)
    assert [each.archive.node_id for each in plan.archives] == ["roomy"]
    assert (plan.archives[0].first_position, plan.archives[0].end_position) == (4, 2000 - 64)
    # Two layers, each of which waits 2 ms.
    added = 1 / plan.predicted_tokens_per_second - 1 / window.predicted_tokens_per_second
    assert added == pytest.approx(0.004)
    assert any("full" in reason and "10 B free" in reason for reason in plan.reasons)


async def test_another_nodes_verifier_is_planned_with_what_it_measured(
    verifier: nodes.Node, proposer: nodes.Node, faraway: Faraway
) -> None:
    report = SelfReport(
        capability_pb2.GetNodeResponse(
            links=[capability_pb2.PeerLink(node_id="proposer", round_trip_seconds=0.000321)],
            acceptances=[
                capability_pb2.MeasuredAcceptance(
                    verifier_model_id="faraway",
                    proposer_model_id="ngram",
                    acceptance_rate=0.9,
                    acceptance_rate_low=0.8,
                    acceptance_rate_high=0.95,
                    drafted_count=1000,
                    session_count=7.0,
                )
            ],
        )
    )
    await faraway(report)
    plan = await plan_of(
        proposer, verifier_model="faraway", proposer_model="ngram", proposer_node_id="proposer"
    )
    assert report.asked == 1
    assert plan.round_trip_seconds == pytest.approx(0.000321)
    assert plan.acceptance_rate == pytest.approx(0.9)
    assert (plan.acceptance_rate_low, plan.acceptance_rate_high) == (0.8, 0.95)
    assert plan.acceptance_measured


async def test_a_node_that_shut_out_a_proposer_is_not_paired_with_it(
    verifier: nodes.Node, proposer: nodes.Node, faraway: Faraway
) -> None:
    await faraway(
        SelfReport(
            capability_pb2.GetNodeResponse(
                links=[
                    capability_pb2.PeerLink(
                        node_id="proposer", round_trip_seconds=1e-4, breaker_open=True
                    )
                ],
            )
        )
    )
    plan = await plan_of(proposer, verifier_model="faraway")
    assert not plan.HasField("proposer")
    assert reasons(plan)["proposer", "ngram"] == placement_pb2.REJECTION_REASON_BREAKER_OPEN


async def test_a_node_that_shut_out_another_model_is_paired_with_it(
    verifier: nodes.Node, proposer: nodes.Node, faraway: Faraway
) -> None:
    link = capability_pb2.PeerLink(
        node_id="proposer",
        round_trip_seconds=1e-4,
        breaker_open=True,
        breaker_open_models=["another"],
    )
    await faraway(SelfReport(capability_pb2.GetNodeResponse(links=[link])))
    # By name: whether n-grams pay is what a busy machine measured of them.
    named = {"proposer_model": "ngram", "proposer_node_id": "proposer"}
    plan = await plan_of(proposer, verifier_model="faraway", **named)
    assert plan.proposer.model_id == "ngram"


async def test_a_silent_node_is_planned_without_its_measurements(
    verifier: nodes.Node, proposer: nodes.Node, faraway: Faraway
) -> None:
    await faraway(SelfReport(capability_pb2.GetNodeResponse(), is_silent=True))
    plan = await plan_of(proposer, verifier_model="faraway")
    assert not plan.HasField("proposer")
    assert reasons(plan)["proposer", "ngram"] == placement_pb2.REJECTION_REASON_UNREACHABLE


async def test_an_impossible_plan_is_refused(verifier: Node) -> None:
    malformed = (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST")
    nowhere = (grpc.StatusCode.FAILED_PRECONDITION, "NO_PLACEMENT")
    for field, value, told in (
        ("verifier_model", "", malformed),
        ("block_size", 32, malformed),
        ("kv_strategy", 17, malformed),
        ("verifier_model", "nobody", (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")),
        ("verifier_node_id", "x", nowhere),
        ("context_tokens", 2**32 - 1, nowhere),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await plan_of(verifier, **{field: value})
        refusal = calls.refused(caught.value)
        assert (refusal.code, refusal.reason) == told, field


async def test_a_node_without_the_model_says_who_serves_it(
    verifier: nodes.Node, proposer: nodes.Node
) -> None:
    caller = calls.Caller(proposer.channel)
    request = runtime_pb2.CreateSessionRequest(model_id="random")
    refusal = await caller.refusal("CreateSession", request)
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "MODEL_SERVED_ELSEWHERE",
    )
    assert refusal.metadata == {"address": verifier.address, "node_id": "verifier"}


async def test_a_suspect_that_serves_the_model_is_better_than_nobody(
    verifier: nodes.Node, proposer: nodes.Node, neighbourhood: nodes.Neighbourhood
) -> None:
    neighbourhood.directory.set_liveness("verifier", Liveness.SUSPECT)
    request = runtime_pb2.CreateSessionRequest(model_id="random")
    refusal = await calls.Caller(proposer.channel).refusal("CreateSession", request)
    neighbourhood.directory.set_liveness("verifier", Liveness.ALIVE)
    assert (refusal.reason, refusal.metadata["node_id"]) == ("MODEL_SERVED_ELSEWHERE", "verifier")


async def test_a_dead_nodes_model_is_not_found(
    verifier: nodes.Node, proposer: nodes.Node, neighbourhood: nodes.Neighbourhood
) -> None:
    neighbourhood.directory.set_liveness("verifier", Liveness.DEAD)
    request = runtime_pb2.CreateSessionRequest(model_id="random")
    refusal = await calls.Caller(proposer.channel).refusal("CreateSession", request)
    neighbourhood.directory.set_liveness("verifier", Liveness.ALIVE)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")


async def test_an_open_breaker_is_in_the_plan(verifier: nodes.Node, proposer: nodes.Node) -> None:
    book = verifier.roles.verifier._breakers
    book.put(
        ("proposer", "ngram"), Breaker().after_fault(DraftFaultKind.DEADLINE, time.monotonic())
    )
    plan = await plan_of(verifier)
    assert reasons(plan)["proposer", "ngram"] == placement_pb2.REJECTION_REASON_BREAKER_OPEN
    book.put(("proposer", "ngram"), Breaker())


async def test_figures_that_are_none_are_not_planned_with(
    verifier: Node, proposer: Node, faraway: Callable[[SelfReport], Awaitable[None]]
) -> None:
    for figure in (float("nan"), float("inf"), -0.5):
        link = capability_pb2.PeerLink(node_id="proposer", round_trip_seconds=figure)
        measured = capability_pb2.MeasuredAcceptance(
            verifier_model_id="faraway",
            proposer_model_id="ngram",
            acceptance_rate=figure,
            acceptance_rate_high=1.0,
            drafted_count=1000,
            session_count=7.0,
        )
        report = SelfReport(capability_pb2.GetNodeResponse(links=[link], acceptances=[measured]))
        await faraway(report)
        plan = await plan_of(proposer, verifier_model="faraway")
        assert reasons(plan)["proposer", "ngram"] == placement_pb2.REJECTION_REASON_UNREACHABLE
        report.response.links[0].round_trip_seconds = 0.001
        named = await plan_of(proposer, verifier_model="faraway", proposer_model="ngram")
        assert not named.acceptance_measured
        assert 0.0 < named.acceptance_rate < 1.0


async def test_a_node_that_moves_while_it_is_asked_does_not_take_the_plan_with_it(
    verifier: nodes.Node, proposer: nodes.Node, faraway: Faraway, neighbourhood: nodes.Neighbourhood
) -> None:
    """Its old channel is closed under the question, which gRPC tells as a cancellation."""
    report = SelfReport(capability_pb2.GetNodeResponse(), is_silent=True)
    await faraway(report)
    planning = asyncio.create_task(plan_of(proposer, verifier_model="faraway"))
    await calls.until(lambda: report.asked)
    view = neighbourhood.directory.views["faraway"]
    await neighbourhood.directory.put("faraway", "127.0.0.1:1", view.card.models)
    plan = await planning
    assert plan.verifier.node_id == "faraway"


async def test_a_node_that_answers_with_bytes_that_are_none_is_planned_without(
    verifier: nodes.Node, proposer: nodes.Node, neighbourhood: nodes.Neighbourhood
) -> None:
    async def garbage(_request: object, _context: object) -> bytes:
        return b"\xff\xff"

    method = "/kakeya.v1.CapabilityService/GetNode"

    class Garbage(grpc.GenericRpcHandler):
        def service(
            self, call: grpc.HandlerCallDetails
        ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
            return grpc.unary_unary_rpc_method_handler(garbage) if call.method == method else None

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Garbage(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    offer = replace(verifier.roles.offers()[0], model_id="garbled")
    await neighbourhood.directory.put("garbled", f"127.0.0.1:{port}", (offer,))
    plan = await plan_of(proposer, verifier_model="garbled")
    assert plan.verifier.node_id == "garbled"
    await server.stop(0)
    neighbourhood.directory.views.pop("garbled")
