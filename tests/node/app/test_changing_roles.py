"""Roles come and go while the node runs: real nodes, real sockets, small models."""

import asyncio
import gc
import shutil
import threading
import weakref
from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Never

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kakeya import AsyncClient, AsyncSession, Speculation, StopReason
from kakeya_fleet.engine.errors import ModelNotFound
from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.errors import ModelNotFound as NotServed
from kakeya_fleet.node.config.role_spec import BadRoleSpec
from kakeya_fleet.node.roles.cycles import set_aside
from kakeya_fleet.node.rpc.refusals import Draining
from kakeya_fleet.node.watch.transfers import TransferState
from scripts.support.placement import when_it_can_be_had
from tests.node.conftest import StartAgent
from tests.support.calls import until

PROMPT = tuple((7 * index + index * index) % 96 for index in range(40))
TOKENS = 64
FREED_SECONDS = 30.0
"""What a call held that was ending is found when all is set aside anew."""
MODEL = "small"
KV: dict[str, Any] = {"kv_strategy": "sink_window", "sink_tokens": 4, "window_tokens": 16}
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


@pytest.fixture(autouse=True)
def set_aside_again() -> Iterator[None]:
    """What a removal here has looked through, removals of other tests need not."""
    yield
    gc.freeze()


@pytest.fixture(scope="module")
def small(random_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The specification of a verifier of two layers."""
    return f"verifier={shutil.copytree(random_checkpoint(), tmp_path_factory.mktemp('m') / MODEL)}"


async def whole_stream(client: AsyncClient, model: str = MODEL) -> Sequence[int]:
    """What an undisturbed session becomes."""
    async with await client.create_session(model, speculation="off", **KV) as session:
        await session.append(PROMPT)
        await session.generate(TOKENS).collect()
        return session.history


async def prompted(client: AsyncClient, model: str = MODEL, **options: Any) -> AsyncSession:
    """A session with the prompt in its history."""
    opening = partial(client.create_session, model, **(KV | {"speculation": "off"} | options))
    session = await when_it_can_be_had(opening)
    await session.append(PROMPT)
    return session


async def to_the_end(generation: AsyncIterable[object]) -> None:
    async for _ in generation:
        pass


async def keep_generating(
    client: AsyncClient, whole: Sequence[int], speculation: Speculation, stop: asyncio.Event
) -> int:
    """One session after the other, each with the whole stream; how many there were."""
    count = 0
    while not stop.is_set():
        async with await prompted(client, speculation=speculation) as session:
            await session.generate(TOKENS).collect()
            assert session.history == whole
        count += 1
    return count


async def until_models_are(client: AsyncClient, node_id: str, models: set[str]) -> None:
    """Waits until another node knows a card that names these: it hears of it by gossip."""
    async with asyncio.timeout(30):
        named: set[str] | None = None
        while named != models:
            nodes = await client.fleet.nodes()
            cards = [node for node in nodes if node.node_id == node_id]
            named = {each.model_id for card in cards for each in card.models}


def threads_of(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


async def test_a_verifier_is_added_beside_sessions_removed_and_added_again(
    start_agent: StartAgent, small: str
) -> None:
    # A busy machine answers late; what is tried here is not how late a draft may be.
    other = await start_agent("other", serve=[small], draft_deadline_seconds=20.0)
    changing = await start_agent(
        "changing", serve=["proposer=ngram"], peers=[other.address], drain_seconds=20.0
    )
    await other.events.wait_for("peer_joined", node_id=changing.node_id)
    node = changing.node
    # The stub has Watch, its types have not.
    stub: Any = health_pb2_grpc.HealthStub(changing.channel)
    health = stub.Watch(health_pb2.HealthCheckRequest(service="verifier"))
    assert (await health.read()).status == UNKNOWN
    async with AsyncClient(other.address) as calm, AsyncClient(changing.address) as client:
        whole = await whole_stream(calm)
        fixed = Speculation("ngram", node_id=changing.node_id, block_size=4)
        stop = asyncio.Event()
        beside = asyncio.ensure_future(keep_generating(calm, whole, fixed, stop))

        await node.add_role(small)
        assert (await health.read()).status == NOT_SERVING
        assert (await health.read()).status == SERVING
        await until_models_are(calm, changing.node_id, {"ngram", MODEL})
        assert node.roles.proposer.draft_count > 0

        # A session of its own: taken away in mid-answer, it goes on where the model is.
        session, idle = [await prompted(client, resume=True) for _ in range(2)]
        assert session.address == idle.address == changing.address
        generation = session.generate(TOKENS)
        tokens = aiter(generation)
        await anext(tokens)
        verifier = weakref.ref(node.roles.verifiers[MODEL].verifier)
        # As an agent's process does once it is loaded.
        set_aside()
        removing = asyncio.ensure_future(node.remove_role(Role.VERIFIER, MODEL))
        await to_the_end(tokens)
        await removing
        assert generation.done is not None
        assert generation.done.stop_reason is StopReason.MAX_TOKENS
        assert session.history == whole
        assert [each.reason for each in session.resumptions] == ["DRAINING"]
        assert session.address == other.address
        await idle.generate(TOKENS).collect()
        assert idle.history == whole
        assert idle.address == other.address

        # Nothing of it is left, and everything else is as it was.
        await until(lambda: verifier() is None, seconds=FREED_SECONDS)
        assert len(threads_of(f"verifier-{MODEL}")) == 1
        assert (await health.read()).status == UNKNOWN
        await until_models_are(calm, changing.node_id, {"ngram"})
        assert node.roles.load_numbers().kv_budget_bytes == 0

        await node.add_role(small)
        assert (await health.read()).status == NOT_SERVING
        assert (await health.read()).status == SERVING
        again = await prompted(client)
        assert again.address == changing.address
        await again.generate(TOKENS).collect()
        assert again.history == whole
        stop.set()
        assert await beside > 0


async def test_an_add_that_fails_leaves_the_node_as_it_was(start_agent: StartAgent) -> None:
    agent = await start_agent(serve=["proposer=ngram"])
    node = agent.node
    # The stub has Check, its types have not.
    health: Any = health_pb2_grpc.HealthStub(agent.channel)
    threads = threading.active_count()
    with pytest.raises(ModelNotFound, match="nowhere"):
        await node.add_role("verifier=./nowhere")
    with pytest.raises(BadRoleSpec, match="twice"):
        await node.add_role("proposer=ngram")
    with pytest.raises(BadRoleSpec, match="write"):
        await node.add_role("verifier")
    with pytest.raises(NotServed, match="served: ngram"):
        await node.remove_role(Role.PROPOSER, "another")
    assert threading.active_count() <= threads
    assert [offer.model_id for offer in node.roles.offers()] == ["ngram"]
    assert not node.roles.awaited()
    assert not node.control.card_maker.current.card.loading
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == SERVING
    (failed,) = node.activity.transfers.statuses()[1:]
    assert (failed.state, "nowhere" in failed.error) == (TransferState.FAILED, True)


async def test_two_adds_at_once_both_come_and_the_same_twice_does_not(
    start_agent: StartAgent, small: str
) -> None:
    agent = await start_agent()
    node = agent.node
    await asyncio.gather(node.add_role(small), node.add_role("archive=16MiB"))
    same = await asyncio.gather(
        node.add_role("proposer=ngram"), node.add_role("proposer=ngram"), return_exceptions=True
    )
    assert [type(each) for each in same] == [type(None), BadRoleSpec]
    assert node.roles.served() == {Role.VERIFIER, Role.ARCHIVE, Role.PROPOSER}
    card = node.control.card_maker.current.card
    assert [offer.model_id for offer in card.models] == [MODEL, "ngram"]
    assert card.archive is not None
    assert not card.loading

    await asyncio.gather(node.remove_role(Role.ARCHIVE), node.remove_role(Role.PROPOSER, "ngram"))
    assert node.roles.served() == {Role.VERIFIER}
    assert node.roles.load_numbers().archive_budget_bytes == 0
    with pytest.raises(NotServed):
        await node.remove_role(Role.ARCHIVE)


async def test_verifiers_share_the_budget_as_they_come_and_go(
    start_agent: StartAgent, small: str, random_checkpoint: Callable[..., Path]
) -> None:
    agent = await start_agent(serve=[small], kv_budget_bytes=64 << 20)
    roles, folder = agent.node.roles, random_checkpoint()
    await agent.node.add_role(f"verifier={folder}")
    shares = {served.budget.nbytes for served in roles.verifiers.values()}
    assert (len(roles.verifiers), shares) == (2, {32 << 20})
    await agent.node.remove_role(Role.VERIFIER, folder.name)
    assert [served.budget.nbytes for served in roles.verifiers.values()] == [64 << 20]


async def test_a_session_goes_on_without_a_proposer_of_its_own_node_that_is_removed(
    start_agent: StartAgent,
) -> None:
    agent = await start_agent(serve=["verifier=tiny", "proposer=tiny-dflash"])
    node = agent.node
    async with AsyncClient(agent.address) as client:
        whole = await whole_stream(client, "tiny")
        fixed = Speculation("tiny-dflash", block_size=4)
        session = await prompted(client, "tiny", speculation=fixed)
        tokens = aiter(session.generate(TOKENS))
        await anext(tokens)
        proposer = weakref.ref(node.roles.proposer.by_model["tiny-dflash"].proposer)
        set_aside()
        await node.remove_role(Role.PROPOSER, "tiny-dflash")
        await to_the_end(tokens)
        assert session.history == whole
        assert node.roles.verifier.open_breakers() == frozenset()
        await until(lambda: proposer() is None, seconds=FREED_SECONDS)
        assert not threads_of("proposer-tiny-dflash")


async def test_a_node_that_leaves_gives_up_what_it_adds(
    start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await start_agent()
    began, go_on = threading.Event(), threading.Event()

    def load(*_arguments: object, **_options: object) -> Never:
        began.set()
        assert go_on.wait(60)
        raise AssertionError("nobody waits for it")

    monkeypatch.setattr("kakeya_fleet.node.roles.verifier.verifier_loading.load_verifier", load)
    adding = asyncio.ensure_future(agent.node.add_role("verifier=tiny"))
    assert await asyncio.to_thread(began.wait, 60)
    agent.node.leave(0.1)
    await agent.events.wait_for("draining")
    go_on.set()
    with pytest.raises(Draining):
        await adding
    await agent.task
    with pytest.raises(Draining):
        await agent.node.add_role("proposer=ngram")
