"""Models come and go by call: real nodes, real sockets, small models."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kakeya import (
    AsyncClient,
    BadRequest,
    Draining,
    KakeyaError,
    LoadedModel,
    LoadPhase,
    LoadProgress,
    ModelKind,
    ModelLoading,
    ModelNotFound,
    NotLoopback,
    Owner,
    Role,
    StopReason,
    TransferKind,
)
from kakeya.v1 import model_pb2, model_service_pb2, model_service_pb2_grpc
from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import OutOfMemory
from kakeya_fleet.node.app import model_loads
from kakeya_fleet.node.membership import network
from kakeya_fleet.node.roles.verifier import verifier_loading
from kakeya_fleet.node.watch.event_log import EventKind
from tests.node.conftest import RunningAgent, StartAgent
from tests.support.calls import until
from tests.support.homes import Home, refusal
from tests.support.members import channel_to

MODEL = "small"
PROMPT = tuple((7 * index + index * index) % 96 for index in range(40))
KV: dict[str, Any] = {"kv_strategy": "sink_window", "sink_tokens": 4, "window_tokens": 16}
PATIENCE = 60.0


@pytest.fixture(scope="module")
def small(random_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a verifier of two layers."""
    return str(shutil.copytree(random_checkpoint(), tmp_path_factory.mktemp("m") / MODEL))


class Modules:
    """They refer to each other, and to what has them."""

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier
        self.other = self


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Nothing is looked through but when it is asked for."""
    gc.disable()
    yield
    gc.enable()


class HeldLoads:
    """Loads of verifiers wait in their threads until they may go on."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.error: Exception | None = None
        """Raised once the model is read."""
        self.read: weakref.ref[Verifier] | None = None
        self._load = load_verifier

    def __call__(self, *arguments: Any, **options: Any) -> Verifier:
        self.began.release()
        assert self.go_on.wait(PATIENCE)
        verifier = self._load(*arguments, **options)
        self.read = weakref.ref(verifier)
        if self.error is not None:
            Modules(verifier)
            raise self.error
        return verifier

    async def until_begun(self) -> None:
        assert await asyncio.to_thread(self.began.acquire, timeout=PATIENCE)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldLoads]:
    loads = HeldLoads()
    monkeypatch.setattr(verifier_loading, "load_verifier", loads)
    yield loads
    loads.go_on.set()


def models_of(agent: RunningAgent) -> list[str]:
    """What its card offers."""
    return [offer.model_id for offer in agent.node.control.card_maker.current.card.models]


async def heard(client: AsyncClient, model: str, **options: Any) -> list[object]:
    """All that is told of a load, and its end."""
    load = client.fleet.load_model(model, **options)
    progress: list[object] = [each async for each in load]
    return [*progress, load.loaded]


async def test_a_model_is_loaded_answers_is_unloaded_and_its_session_goes_on_elsewhere(
    start_agent: StartAgent, small: str
) -> None:
    other = await start_agent("other", serve=[f"verifier={small}"])
    agent = await start_agent("mini-1", peers=[other.address])
    await agent.events.wait_for("peer_joined", node_id=other.node_id)
    async with AsyncClient(agent.address) as client:
        *progress, loaded = await heard(client, small)
        assert isinstance(loaded, LoadedModel)
        assert (loaded.offer.model_id, loaded.offer.role) == (MODEL, Role.VERIFIER)
        assert not loaded.was_served
        assert all(isinstance(each, LoadProgress) for each in progress)
        assert models_of(agent) == [MODEL]
        assert {each.model_id for each in (await client.fleet.node()).card.models} == {MODEL}

        session = await client.create_session(MODEL, speculation="off", resume=True, **KV)
        assert session.address == agent.address
        await session.append(PROMPT)
        generation = session.generate(900)
        tokens = aiter(generation)
        await anext(tokens)
        unloaded = await client.fleet.unload_model(MODEL, drain_seconds=0.0)
        assert (unloaded.model_id, unloaded.role) == (MODEL, Role.VERIFIER)
        assert unloaded.memory_free_bytes > 0
        async for _ in tokens:
            pass
        assert generation.done is not None
        assert generation.done.stop_reason is StopReason.MAX_TOKENS
        assert session.address == other.address
    assert models_of(agent) == []
    kinds = [event.kind for event in agent.node.activity.events.latest]
    assert kinds.count(EventKind.MODEL_UNLOADED) == 1


async def test_what_is_served_is_said_at_once_by_any_of_its_names_and_in_each_role(
    start_agent: StartAgent, small: str
) -> None:
    agent = await start_agent(serve=[f"verifier={small}", "proposer=ngram"])
    async with AsyncClient(agent.address) as client:
        for name in (small, MODEL, f"{small}/../{MODEL}"):
            (only,) = await heard(client, name)
            assert isinstance(only, LoadedModel)
            assert (only.was_served, only.offer.model_id) == (True, MODEL)
        (ngram,) = await heard(client, "ngram", role=Role.PROPOSER)
        assert isinstance(ngram, LoadedModel)
        assert ngram.offer.kind is ModelKind.NGRAM

        drafter = await client.fleet.load_model(small, role=Role.PROPOSER).wait()
        assert (drafter.was_served, drafter.offer.role) == (False, Role.PROPOSER)
        with pytest.raises(BadRequest, match="say which"):
            await client.fleet.unload_model(MODEL)
        unloaded = await client.fleet.unload_model(small, role=Role.VERIFIER)
        assert unloaded.role is Role.VERIFIER
        assert (await client.fleet.unload_model(MODEL)).role is Role.PROPOSER
        with pytest.raises(ModelNotFound, match="served: ngram"):
            await client.fleet.unload_model(MODEL)


async def test_weights_are_those_of_the_load_and_others_are_refused_by_name(
    start_agent: StartAgent, small: str
) -> None:
    agent = await start_agent()
    async with AsyncClient(agent.address) as client:
        loaded = await client.fleet.load_model(small, weights="bf16").wait()
        assert loaded.offer.quantization == "bf16"
        assert (await client.fleet.load_model(small, weights="bf16").wait()).was_served
        with pytest.raises(KakeyaError, match="served with --weights bf16") as caught:
            await client.fleet.load_model(small, weights="int8").wait()
        assert caught.value.reason == "BAD_ROLE_SPEC"
        with pytest.raises(BadRequest, match="auto, bf16, int8, int4"):
            await client.fleet.load_model(small, weights="int3").wait()
        for name in ("ngram", "tiny-dflash"):
            drafting = client.fleet.load_model(name, role=Role.PROPOSER, weights="int8")
            with pytest.raises(KakeyaError, match="with the weights that it has"):
                await drafting.wait()
    assert models_of(agent) == [MODEL]


async def test_a_copy_of_a_served_models_folder_is_refused_before_it_is_read(
    start_agent: StartAgent, small: str, tmp_path: Path, held: HeldLoads
) -> None:
    held.go_on.set()
    agent = await start_agent(serve=[f"verifier={small}"])
    await held.until_begun()
    copy = shutil.copytree(small, tmp_path / MODEL)
    async with AsyncClient(agent.address) as client:
        with pytest.raises(KakeyaError, match="are both named 'small'"):
            await client.fleet.load_model(str(copy)).wait()
    assert not held.began.acquire(blocking=False)


async def test_who_asks_for_what_is_loading_hears_of_that_load_which_outlives_its_callers(
    start_agent: StartAgent, small: str, held: HeldLoads
) -> None:
    agent = await start_agent()
    async with AsyncClient(agent.address) as client, AsyncClient(agent.address) as second:
        first = aiter(client.fleet.load_model(small))
        assert (await anext(first)).phase is LoadPhase.FETCHING
        await held.until_begun()
        joined = second.fleet.load_model(small)
        progress = await anext(aiter(joined))
        assert progress.phase is LoadPhase.READING
        assert progress.transfer is not None
        assert (progress.transfer.model_id, progress.transfer.kind) == (MODEL, TransferKind.LOAD)
        # Both leave.
        del first
        await joined.aclose()
        with pytest.raises(ModelLoading, match="it is being loaded"):
            await client.fleet.unload_model(small)
        with pytest.raises(KakeyaError, match="being loaded with --weights auto"):
            await client.fleet.load_model(small, weights="int8").wait()
        assert models_of(agent) == []
        held.go_on.set()
        assert not (await second.fleet.load_model(small).wait()).was_served
        assert models_of(agent) == [MODEL]
    # One load was made of all of these.
    assert not held.began.acquire(blocking=False)


async def test_who_asks_for_what_the_node_begins_with_hears_of_that_load(
    start_agent: StartAgent, small: str, held: HeldLoads, tmp_path: Path
) -> None:
    starting = asyncio.ensure_future(start_agent("mini-1", serve=[f"verifier={small}"]))
    await held.until_begun()
    address = json.loads((tmp_path / "mini-1" / "agent.json").read_text())["address"]
    async with AsyncClient(address) as client:
        load = client.fleet.load_model(small)
        progress = aiter(load)
        assert (await anext(progress)).phase is LoadPhase.READING
        with pytest.raises(ModelLoading, match="it is being loaded"):
            await client.fleet.unload_model(small)
        with pytest.raises(KakeyaError, match="being loaded with --weights auto"):
            await client.fleet.load_model(small, weights="int8").wait()
        held.go_on.set()
        async for _ in progress:
            pass
        assert load.loaded is not None
        assert (load.loaded.offer.model_id, load.loaded.was_served) == (MODEL, False)
    await starting
    assert not held.began.acquire(blocking=False)


async def test_loads_wait_for_each_other_and_as_many_as_may(
    start_agent: StartAgent, small: str, held: HeldLoads
) -> None:
    agent = await start_agent()
    most = agent.node.ground.allowances.limits.models.loads
    async with AsyncClient(agent.address) as client:
        loading = asyncio.ensure_future(client.fleet.load_model(small).wait())
        await held.until_begun()
        waiting = aiter(client.fleet.load_model("ngram", role=Role.PROPOSER))
        assert (await anext(waiting)) == LoadProgress(LoadPhase.WAITING, None)
        with pytest.raises(ModelLoading, match="small, ngram is being loaded"):
            await client.fleet.unload_model("other")
        for number in range(most - 2):
            await anext(aiter(client.fleet.load_model(f"./absent-{number}")))
        with pytest.raises(KakeyaError, match=r"small, ngram, .*absent-0") as caught:
            await client.fleet.load_model("tiny").wait()
        assert caught.value.reason == "RESOURCE_EXHAUSTED"
        (bound,) = [each for each in await client.fleet.limits() if each.name == "models.loads"]
        assert (bound.used, bound.limit, bound.refused_full_count) == (most, most, 1)
        held.go_on.set()
        await loading
        async for _ in waiting:
            pass
    assert models_of(agent) == [MODEL, "ngram"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OutOfMemory("the machine cannot hold it"), "OUT_OF_MEMORY"),
        (OSError(28, "No space left on device"), "INTERNAL_ERROR"),
    ],
)
@pytest.mark.usefixtures("no_collector")
async def test_a_load_that_fails_leaves_the_node_as_it_was(
    start_agent: StartAgent, small: str, held: HeldLoads, error: Exception, reason: str
) -> None:
    agent = await start_agent(serve=["proposer=ngram"])
    held.go_on.set()
    async with AsyncClient(agent.address) as client:
        held.error = error
        with pytest.raises(KakeyaError) as caught:
            await client.fleet.load_model(small).wait()
        assert caught.value.reason == reason
        assert models_of(agent) == ["ngram"]
        assert not agent.node.control.card_maker.current.card.loading
        (_, failed) = agent.node.activity.transfers.statuses()
        assert failed.error
        if reason == "OUT_OF_MEMORY":
            # What was read of it is given back.
            await until(lambda: held.read is not None and held.read() is None)
        with pytest.raises(ModelNotFound, match="nowhere"):
            await client.fleet.load_model("./nowhere").wait()
        held.error = None
        await client.fleet.load_model(small).wait()
    assert models_of(agent) == [MODEL, "ngram"]
    assert not agent.task.done()


async def test_who_asks_again_while_a_failed_one_is_freed_has_a_load_of_its_own(
    start_agent: StartAgent, small: str, held: HeldLoads, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await start_agent()
    freed = asyncio.Event()
    monkeypatch.setattr(model_loads, "free_removed", freed.wait)
    held.go_on.set()
    held.error = OutOfMemory("the machine cannot hold it")
    async with AsyncClient(agent.address) as client:
        with pytest.raises(KakeyaError, match="cannot hold it"):
            await client.fleet.load_model(small).wait()
        held.error = None
        await client.fleet.load_model(small).wait()
    assert models_of(agent) == [MODEL]
    freed.set()


async def test_a_node_that_leaves_ends_loads_with_draining(
    start_agent: StartAgent, small: str, held: HeldLoads
) -> None:
    agent = await start_agent()
    async with AsyncClient(agent.address) as client:
        loading = asyncio.ensure_future(client.fleet.load_model(small).wait())
        waiting = asyncio.ensure_future(client.fleet.load_model("tiny").wait())
        await held.until_begun()
        await client.fleet.leave(0.1)
        for each in (loading, waiting):
            with pytest.raises(Draining):
                await each
        held.go_on.set()
        await agent.task


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("", {}, "0 characters"),
        ("x" * 1025, {}, "1025 characters"),
        ("tiny\0", {}, "5 characters"),
        ("64MiB", {"role": Role.ARCHIVE}, "fleet join --serve archive"),
    ],
)
async def test_what_no_model_is_asked_for_by_is_refused(
    start_agent: StartAgent, model: str, options: dict[str, Any], message: str
) -> None:
    agent = await start_agent()
    async with AsyncClient(agent.address) as client:
        with pytest.raises(BadRequest, match=message):
            await client.fleet.load_model(model, **options).wait()
        with pytest.raises(BadRequest):
            await client.fleet.unload_model(model, **options)
    assert agent.node.activity.transfers.statuses() == ()


async def test_without_an_authority_only_its_own_machine_changes_what_a_node_serves(
    start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await start_agent(serve=["proposer=ngram"])
    monkeypatch.setattr(network, "is_own_address", lambda _: False)
    async with AsyncClient(agent.address) as client:
        with pytest.raises(NotLoopback, match="from its own machine only"):
            await client.fleet.load_model("tiny").wait()
        with pytest.raises(NotLoopback, match="from its own machine only"):
            await client.fleet.unload_model("ngram")
    assert models_of(agent) == ["ngram"]


async def test_a_keeper_loads_what_has_a_name_everywhere_and_the_owner_any_path(
    home: Home, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.let_in("b")
    b = await home.start("b")
    beside = tmp_path / "beside"
    shutil.copytree(small, beside / "organisation" / "name")
    (beside / "tiny-dflash@smollm2").mkdir()
    monkeypatch.chdir(beside)
    paths = [
        (small, model_pb2.ROLE_VERIFIER),
        ("~/models/small", model_pb2.ROLE_VERIFIER),
        # Of the hub's form, and something lies there.
        ("organisation/name", model_pb2.ROLE_VERIFIER),
        ("../beside/model.gguf", model_pb2.ROLE_VERIFIER),
        ("organisation/other:../../../model.gguf", model_pb2.ROLE_VERIFIER),
        (f"tiny-dflash@{small}", model_pb2.ROLE_PROPOSER),
        # A folder of that whole name.
        ("tiny-dflash@smollm2", model_pb2.ROLE_PROPOSER),
    ]
    async with channel_to(b.address, home.keeper) as keepers:
        stub = model_service_pb2_grpc.ModelServiceStub(keepers)
        for model, role in paths:
            request = model_service_pb2.LoadModelRequest(model=model, role=role)
            assert await refusal(stub.LoadModel(request, timeout=20).read()) == "NOT_LOOPBACK"
        assert b.node.activity.transfers.statuses() == ()
        named = model_service_pb2.LoadModelRequest(
            model="tiny-dflash@tiny", role=model_pb2.ROLE_PROPOSER
        )
        *_, last = [each async for each in stub.LoadModel(named, timeout=60)]
        assert last.loaded.offer.model_id == "tiny-dflash"
        unloading = model_service_pb2.UnloadModelRequest(model_id="tiny-dflash")
        assert (await stub.UnloadModel(unloading, timeout=60)).role == model_pb2.ROLE_PROPOSER
    owner = Owner((home.folder / "b" / "trust" / "owner.key").read_text().strip())
    async with AsyncClient(str(b.ready["local_address"]), owner=owner) as client:
        assert (await client.fleet.load_model(small).wait()).offer.model_id == MODEL
    assert models_of(b) == [MODEL]
