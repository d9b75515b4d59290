"""How keys and values are kept when the client does not say, over the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kakeya.v1 import placement_pb2, placement_pb2_grpc, runtime_pb2
from kakeya_fleet.engine.errors import RestorerRefused
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.node.roles.archive.archives import Archives
from kakeya_fleet.node.roles.archive.session_restorers import RestorerSettings
from kakeya_fleet.node.roles.settings import RoleSettings
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.patience import PATIENCE_SECONDS

RESTORED = placement_pb2.KV_STRATEGY_RESTORED
SINK_WINDOW = placement_pb2.KV_STRATEGY_SINK_WINDOW
PROMPT = [(7 * index + index // 11) % 96 for index in range(180)]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def around() -> AsyncIterator[nodes.Neighbourhood]:
    async with nodes.Neighbourhood() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def verifier_node(around: nodes.Neighbourhood, checkpoint: Path) -> nodes.Node:
    settings = RoleSettings(
        kv_budget_bytes=64 << 20, restorers=RestorerSettings(deadline=30.0, rebuild=2.0)
    )
    return await around.start("verifier", f"verifier={checkpoint}", settings=settings)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def archive(around: nodes.Neighbourhood) -> nodes.Node:
    return await around.start("archive", "archive=64MiB")


@pytest.fixture
def caller(verifier_node: nodes.Node, archive: nodes.Node) -> calls.Caller:
    return calls.Caller(verifier_node.channel)


async def opened(caller: calls.Caller, **fields: Any) -> Any:
    fields.setdefault("model_id", "random")
    request = runtime_pb2.CreateSessionRequest(
        window_tokens=32,
        speculation=runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF),
        **fields,
    )
    return await caller.stub.CreateSession(request, timeout=PATIENCE_SECONDS)


async def plan_of(node: Any, **fields: Any) -> Any:
    stub = placement_pb2_grpc.PlacementServiceStub(node.channel)
    request = placement_pb2.PlanRequest(verifier_model="random", window_tokens=32, **fields)
    return (await stub.Plan(request, timeout=PATIENCE_SECONDS)).plan


def choice_of(plan: Any) -> str:
    words = ("does not say how keys and values are kept", "Sink and window alone are kept")
    (reason,) = [each for each in plan.reasons if any(word in each for word in words)]
    return str(reason)


async def test_a_session_that_does_not_say_is_restored_and_its_forks_too(
    caller: calls.Caller, verifier_node: nodes.Node
) -> None:
    session = await opened(caller, initial_token_ids=PROMPT)
    assert session.kv_strategy == session.plan.kv_strategy == RESTORED
    assert session.plan.archive.node_name == "archive"
    assert "an archive has room" in choice_of(session.plan)
    assert (await plan_of(verifier_node)).kv_strategy == RESTORED
    info = await caller.info(session.session_id)
    assert (info.kv_strategy, info.forgotten_token_count) == (RESTORED, 0)
    asked = await opened(caller, kv_strategy=RESTORED, initial_token_ids=PROMPT)
    assert not any("does not say" in reason for reason in asked.plan.reasons)
    fork = await caller.stub.ForkSession(
        runtime_pb2.ForkSessionRequest(session_id=session.session_id), timeout=10
    )
    forked = await caller.info(fork.session_id)
    assert (forked.kv_strategy, forked.plan.kv_strategy) == (RESTORED, RESTORED)
    expected = (await caller.generate(asked.session_id, 20)).token_ids
    for each in (session.session_id, fork.session_id):
        stream = await caller.generate(each, 20)
        assert stream.token_ids == expected
        assert stream.done.forgotten_token_count == 0
    for each in (session.session_id, fork.session_id, asked.session_id):
        await caller.close(each)


async def test_without_an_archive_sink_and_window_are_kept_and_the_same_request_id_stays_with_it(
    caller: calls.Caller, verifier_node: nodes.Node, around: nodes.Neighbourhood
) -> None:
    around.directory.set_liveness("archive", Liveness.SUSPECT)
    session = await opened(caller, request_id="before", initial_token_ids=PROMPT)
    around.directory.set_liveness("archive", Liveness.ALIVE)
    assert session.kv_strategy == session.plan.kv_strategy == SINK_WINDOW
    assert "no live node has an archive" in choice_of(session.plan)
    again = await opened(caller, request_id="before", initial_token_ids=PROMPT)
    assert (again.session_id, again.kv_strategy) == (session.session_id, SINK_WINDOW)
    assert choice_of(again.plan) == choice_of(session.plan)
    stream = await caller.generate(session.session_id, 20)
    # All but the first 4 and the last 32 of them.
    assert stream.done.forgotten_token_count == len(PROMPT) + 20 - 36
    info = await caller.info(session.session_id)
    assert info.forgotten_token_count == len(PROMPT) + 20 - 36
    await caller.close(session.session_id)


async def test_an_archive_that_is_gone_by_then_costs_no_session_that_did_not_ask_for_it(
    caller: calls.Caller, around: nodes.Neighbourhood
) -> None:
    """Nobody has noticed yet that its node is dead."""
    frozen = await around.start("gone", "archive=64MiB")
    around.directory.set_liveness("archive", Liveness.DEAD)
    await frozen.stop(noticed=False)
    session = await opened(caller)
    assert session.kv_strategy == session.plan.kv_strategy == SINK_WINDOW
    assert "none took the session" in choice_of(session.plan)
    refusal = await caller.refusal(
        "CreateSession",
        runtime_pb2.CreateSessionRequest(model_id="random", kv_strategy=RESTORED),
    )
    assert refusal.reason == "NO_ARCHIVE"
    around.directory.set_liveness("gone", Liveness.DEAD)
    around.directory.set_liveness("archive", Liveness.ALIVE)
    await caller.close(session.session_id)


async def test_an_archive_that_is_lost_while_the_first_tokens_are_computed_leaves_no_session(
    caller: calls.Caller, verifier_node: nodes.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_arguments: Any) -> None:
        raise RestorerRefused("these numbers it takes from nobody")

    monkeypatch.setattr(Archives, "deposit", refusing)
    sessions = verifier_node.roles.sessions
    before = len(sessions)
    refusal = await caller.refusal(
        "CreateSession",
        runtime_pb2.CreateSessionRequest(
            model_id="random",
            kv_strategy=RESTORED,
            window_tokens=32,
            restorer=placement_pb2.Restorer(node_id="archive"),
            initial_token_ids=PROMPT,
        ),
    )
    assert refusal.reason == "RESTORER_LOST"
    assert len(sessions) == before
