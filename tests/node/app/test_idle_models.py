"""A model that nobody uses is unloaded when a person said so, and no other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kakeya import AsyncClient, BadRequest, ModelNotFound, Role, Speculation
from kakeya_fleet.fleet.cards.card import Role as CardRole
from kakeya_fleet.node.app.idle_models import IdleModels, IdleUnloading
from kakeya_fleet.node.roles.contract import ModelUse
from kakeya_fleet.node.watch.event_log import EventKind
from tests.node.conftest import RunningAgent, StartAgent
from tests.support.calls import until

KEY, OTHER = (CardRole.VERIFIER, "small"), (CardRole.PROPOSER, "small")
KV: dict[str, Any] = {"kv_strategy": "sink_window", "sink_tokens": 4, "window_tokens": 16}


def due(idle: IdleModels, now: float, *, after: float = 10.0, **use: int | bool) -> bool:
    shown = ModelUse(bool(use.get("in_use", False)), int(use.get("use_count", 0)))
    return idle.due({KEY: shown}, lambda _: after, now) == [KEY]


def test_it_is_due_when_it_was_idle_for_so_long_at_every_look() -> None:
    idle = IdleModels()
    assert [due(idle, now) for now in (0.0, 9.9, 10.0, 11.0)] == [False, False, True, True]


def test_who_uses_it_begins_the_time_anew() -> None:
    idle = IdleModels()
    due(idle, 0.0)
    assert not due(idle, 10.0, in_use=True)
    assert not due(idle, 1000.0, in_use=True)
    assert not due(idle, 1009.0)
    assert due(idle, 1010.0)
    # Begun and ended between two looks.
    assert not due(idle, 1011.0, use_count=1)
    assert not due(idle, 1020.0, use_count=1)
    assert due(idle, 1021.0, use_count=1)


def test_never_is_never_and_other_models_do_not_count() -> None:
    idle = IdleModels()
    assert not any(due(idle, now, after=0.0) for now in (0.0, 1e9))
    shown = {KEY: ModelUse(in_use=False, use_count=0), OTHER: ModelUse(in_use=True, use_count=0)}
    after = {KEY: 5.0, OTHER: 5.0}
    assert idle.due(shown, after.__getitem__, 2e9) == [KEY]


def test_one_that_is_loaded_again_is_another() -> None:
    idle = IdleModels()
    due(idle, 0.0)
    assert idle.due({}, lambda _: 10.0, 5.0) == []
    assert not due(idle, 10.0)
    assert due(idle, 20.0)


@pytest.fixture(scope="module")
def small(random_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(shutil.copytree(random_checkpoint(), tmp_path_factory.mktemp("m") / "small"))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def models_of(agent: RunningAgent) -> list[tuple[str, str]]:
    card = agent.node.control.card_maker.current.card
    return [(offer.role.value, offer.model_id) for offer in card.models]


def watched(agent: RunningAgent, after_seconds: float) -> tuple[IdleUnloading, Clock]:
    """The node's own, by a clock of the test; it looks when the test does."""
    clock = Clock()
    node = agent.node
    unloading = IdleUnloading(
        node.roles, clock, node.announcements.tell_peers, after_seconds=after_seconds
    )
    # What loads say goes to the node's own.
    unloading._own = node.unloading._own
    return unloading, clock


async def test_a_model_goes_after_its_last_session_and_an_event_says_why(
    start_agent: StartAgent, small: str
) -> None:
    agent = await start_agent(serve=[f"verifier={small}", "proposer=ngram"])
    unloading, clock = watched(agent, 1800.0)
    async with AsyncClient(agent.address) as client:
        await unloading.look()
        clock.now = 1799.0
        session = await client.create_session("small", speculation="off", **KV)
        await unloading.look()
        clock.now = 1e6
        await unloading.look()
        assert ("verifier", "small") in models_of(agent)
        await session.close()
        await unloading.look()
        clock.now += 1799.0
        # One that came and went since the look before.
        async with await client.create_session("small", speculation="off", **KV):
            pass
        await unloading.look()
        clock.now += 1799.0
        await unloading.look()
        assert ("verifier", "small") in models_of(agent)
        clock.now += 1.0
        await unloading.look()
        assert models_of(agent) == []
        with pytest.raises(ModelNotFound):
            await client.create_session("small")
    said = [each.message for each in agent.node.activity.events.latest]
    assert "small is served as a verifier no more: nobody used it for 30 min." in said
    kinds = [each.kind for each in agent.node.activity.events.latest]
    assert kinds.count(EventKind.MODEL_UNLOADED) == 2


async def test_a_drafter_goes_when_nobody_drafts_with_it(
    start_agent: StartAgent, small: str
) -> None:
    drafter = await start_agent("mini-1", serve=["proposer=ngram"])
    agent = await start_agent("mini-2", serve=[f"verifier={small}"], peers=[drafter.address])
    await agent.events.wait_for("peer_joined", node_id=drafter.node_id)
    unloading, clock = watched(drafter, 60.0)
    async with AsyncClient(agent.address) as client:
        drafted = Speculation("ngram", node_id=drafter.node_id)
        session = await client.create_session("small", speculation=drafted, **KV)
        await session.append(tuple(range(40)))
        await session.generate(4).collect()
        await unloading.look()
        clock.now = 1000.0
        await unloading.look()
        assert models_of(drafter) == [("proposer", "ngram")]
        await session.close()
    clock.now = 2000.0
    await until(lambda: drafter.node.roles.proposer.stream_count == 0)
    await unloading.look()
    clock.now = 2061.0
    await unloading.look()
    assert models_of(drafter) == []


async def test_what_a_load_says_counts_before_what_the_node_was_started_with(
    start_agent: StartAgent, small: str
) -> None:
    agent = await start_agent(unload_after_seconds=3600.0)
    unloading, clock = watched(agent, 3600.0)
    async with AsyncClient(agent.address) as client:
        load = client.fleet.load_model("ngram", role=Role.PROPOSER, unload_after_seconds=0.0)
        await load.wait()
        await client.fleet.load_model(small, unload_after_seconds=20.0).wait()
        unloading._own = agent.node.unloading._own
        await unloading.look()
        # Said of what is served already, and what is not said stays.
        again = await client.fleet.load_model(small, unload_after_seconds=40.0).wait()
        assert again.was_served
        assert (await client.fleet.load_model(small).wait()).was_served
        unloading._own = agent.node.unloading._own
        clock.now = 39.0
        await unloading.look()
        assert len(models_of(agent)) == 2
        clock.now = 41.0
        await unloading.look()
        assert models_of(agent) == [("proposer", "ngram")]
        clock.now = 1e7
        await unloading.look()
        assert models_of(agent) == [("proposer", "ngram")]
        for seconds in (-1.0, 1e9, float("nan")):
            with pytest.raises(BadRequest, match="unload_after_seconds"):
                client.fleet.load_model(small, unload_after_seconds=seconds)


async def test_the_nodes_own_clock_does_it_while_it_runs(
    start_agent: StartAgent, small: str
) -> None:
    agent = await start_agent(serve=["proposer=ngram"])
    async with AsyncClient(agent.address) as client:
        await client.fleet.load_model(small, unload_after_seconds=0.1).wait()
        async with client.fleet.watch_node() as activity:
            async for _ in activity:
                if ("verifier", "small") not in models_of(agent):
                    break
    assert models_of(agent) == [("proposer", "ngram")]
