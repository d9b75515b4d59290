"""A proposer that claims nothing and tells nothing of its time is measured by its drafts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kakeya.v1 import runtime_pb2
from kakeya_fleet.fleet.cards.card import StepCost
from kakeya_fleet.node.planning.draft_time_ledger import LEAST_DRAFTS
from tests.support import calls, liars
from tests.support import neighbourhood as nodes
from tests.support.neighbourhood import LIAR_OFFER

pytestmark = pytest.mark.asyncio(loop_scope="module")

DELAY_SECONDS = 0.03
BLOCK_SIZE = 4


async def opened(client: calls.Caller) -> str:
    """A session whose proposer is the one that claims."""
    return await client.open(
        mode=runtime_pb2.SPECULATION_MODE_FIXED,
        proposer="liar",
        proposer_node="claims",
        block_size=BLOCK_SIZE,
    )


async def test_what_its_drafts_take_overrides_what_it_says(
    verifier: nodes.Node, neighbourhood: nodes.Neighbourhood, client: calls.Caller
) -> None:
    """It claims 0 s on its card, and 10 us in each answer: one session learns better."""
    claims_nothing = replace(LIAR_OFFER, step_costs=(StepCost(1, 0.0), StepCost(15, 0.0)))
    slow = liars.garbage()
    slow.delay_seconds = DELAY_SECONDS
    await neighbourhood.start_liar("claims", slow, offer=claims_nothing)
    try:
        session = await opened(client)
        told = (await client.info(session)).plan
        assert any("0 us claimed and not measured" in reason for reason in told.reasons)
        await client.append(session, [1, 2, 3, 4])
        await client.generate(session, 3 * LEAST_DRAFTS)
        learned = (await client.info(await opened(client))).plan
        assert any("measured, 0 us claimed" in reason for reason in learned.reasons)
        planner = verifier.roles.verifier._planner
        (drafts,) = (
            measured
            for (_, node_id, _), measured in planner._own_side(
                verifier.view.nodes(), None
            ).draft_costs.items()
            if node_id == "claims"
        )
        assert drafts.costs
        assert all(cost.seconds > DELAY_SECONDS / 2 for cost in drafts.costs)
    finally:
        neighbourhood.directory.views.pop("claims")
