"""What sessions wait for an archive is what the next plan counts with."""

from __future__ import annotations

from pathlib import Path

import pytest

from kakeya.v1 import placement_pb2, placement_pb2_grpc, runtime_pb2
from kakeya_fleet.node.roles.archive.answer_waits import LEAST_ANSWERS
from tests.support import calls
from tests.support import neighbourhood as nodes

pytestmark = pytest.mark.asyncio


async def test_a_plan_counts_what_the_sessions_before_waited(checkpoint: Path) -> None:
    async with nodes.Neighbourhood() as around:
        verifier = await around.start("verifier", f"verifier={checkpoint}")
        await around.start("archive", "archive=64MiB")
        assert verifier.roles.verifier.archive_waits() == {}
        (offer,) = verifier.roles.offers()
        asked = placement_pb2.PlanRequest(
            verifier_model="random",
            context_tokens=1000,
            window_tokens=32,
            without_proposer=True,
            kv_strategy=placement_pb2.KV_STRATEGY_RESTORED,
        )
        planner = placement_pb2_grpc.PlacementServiceStub(verifier.channel)

        async def added_seconds() -> float:
            plan = (await planner.Plan(asked, timeout=20)).plan
            step = 1 / plan.predicted_tokens_per_second
            return float(step - offer.step_costs[0].seconds)

        trip = nodes.ROUND_TRIP_SECONDS
        assert await added_seconds() == pytest.approx(offer.history_layer_count * trip)

        caller = calls.Caller(verifier.channel)
        opened = await caller.stub.CreateSession(
            runtime_pb2.CreateSessionRequest(
                model_id="random",
                kv_strategy=placement_pb2.KV_STRATEGY_RESTORED,
                sink_tokens=4,
                window_tokens=32,
                speculation=runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF),
            ),
            timeout=30,
        )
        await caller.append(opened.session_id, list(range(90)))
        await caller.generate(opened.session_id, LEAST_ANSWERS)
        waits = verifier.roles.verifier.archive_waits()
        assert set(waits) == {"archive"}
        assert 0.0 < waits["archive"] < 1.0
        added = offer.history_layer_count * waits["archive"]
        assert await added_seconds() == pytest.approx(added)
