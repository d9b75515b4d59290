"""Models' files go from node to node by call: real nodes, real sockets, small models."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc.aio
import pytest

from kakeya import (
    AsyncClient,
    BadRequest,
    Draining,
    KakeyaError,
    ModelNotFound,
    NodeNotFound,
    NotFound,
    NotLoopback,
    PulledModel,
    PullPhase,
    PullProgress,
    Role,
    TransferKind,
    TransferState,
)
from kakeya.rpc_status import kakeya_error
from kakeya.v1 import model_service_pb2 as wire
from kakeya.v1.model_service_pb2_grpc import ModelServiceStub
from kakeya_fleet.engine.models import converted_models, model_manifest, pulled_models
from kakeya_fleet.engine.models.hub_download import Progress
from kakeya_fleet.fleet.cards import card
from kakeya_fleet.node.copying import shared_models, sources
from kakeya_fleet.node.membership import network
from kakeya_fleet.node.watch.event_log import EventKind
from tests.node.conftest import RunningAgent, StartAgent
from tests.support.calls import until
from tests.support.gguf_files import write_gguf
from tests.support.homes import Home, refusal
from tests.support.members import channel_to

MODEL = "small"
PROMPT = tuple((7 * index + index * index) % 96 for index in range(40))
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All nodes of this process are of one machine; pieces are small."""
    monkeypatch.setattr(pulled_models, "store_folder", lambda: tmp_path / "store")
    monkeypatch.setattr(shared_models, "PIECE_BYTES", model_manifest.LEAST_PIECE_BYTES)
    return tmp_path / "store"


@pytest.fixture(scope="module")
def small(random_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a verifier of two layers, and what must not travel."""
    folder = shutil.copytree(random_checkpoint(), tmp_path_factory.mktemp("m") / MODEL)
    (folder / "modeling.py").write_text("raise SystemExit")
    (folder / "README.md").write_text("A model.")
    return folder


class HeldReads:
    """Pieces are read once they may be."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.began = threading.Event()
        self._read = shared_models._read

    def __call__(self, *arguments: object) -> bytes | None:
        self.began.set()
        assert self.go_on.wait(PATIENCE)
        return self._read(*arguments)  # type: ignore[arg-type]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldReads]:
    reads = HeldReads()
    monkeypatch.setattr(shared_models, "_read", reads)
    yield reads
    reads.go_on.set()


def kinds(agent: RunningAgent) -> list[EventKind]:
    return [event.kind for event in agent.node.activity.events.latest]


async def answer(client: AsyncClient) -> tuple[int, ...]:
    session = await client.create_session(MODEL, speculation="off")
    async with session:
        await session.append(PROMPT)
        return tuple((await session.generate(24, seed=5, temperature=0.7).collect()).token_ids)


async def test_a_model_is_pulled_from_two_served_with_the_same_stream_and_removed(
    start_agent: StartAgent, small: Path, store: Path
) -> None:
    first = await start_agent("mini-1", serve=[f"verifier={small}"])
    peers = [first.address]
    second = await start_agent("mini-2", serve=[f"verifier={small}"], peers=peers)
    agent = await start_agent("mini-3", peers=[*peers, second.address])
    async with AsyncClient(agent.address) as client, AsyncClient(first.address) as source:
        await until(lambda: len(holders(agent)) == 2)
        pull = client.fleet.pull_model(MODEL)
        told = [each async for each in pull]
        pulled = pull.pulled
        assert pulled is not None
        assert all(isinstance(each, PullProgress) and each.transfer for each in told)
        assert {each.phase for each in told} <= set(PullPhase)
        assert {each.node_name for each in pulled.sources} == {"mini-1", "mini-2"}
        assert sum(each.done_bytes for each in pulled.sources) == pulled.byte_count
        assert (pulled.model_id, pulled.was_there) == (MODEL, False)

        place = pulled_models.stored_place(MODEL)
        assert place is not None
        names = {path.name for path in place.iterdir()}
        assert "README.md" not in names
        assert "modeling.py" not in names
        for path in place.iterdir():
            assert path.read_bytes() == (small / path.name).read_bytes(), path.name
        transfer = agent.node.activity.transfers.statuses()[-1]
        assert (transfer.kind.value, transfer.model_id) == (TransferKind.DOWNLOAD, MODEL)
        assert (transfer.state.value, transfer.done_bytes) == (
            TransferState.DONE,
            pulled.byte_count,
        )
        assert EventKind.MODEL_PULLED in kinds(agent)

        again = await client.fleet.pull_model(MODEL).wait()
        assert (again.was_there, again.files_digest) == (True, pulled.files_digest)
        expected = await answer(source)
        loaded = await client.fleet.load_model(MODEL).wait()
        (theirs,) = (await source.fleet.node()).card.models
        assert loaded.offer.weights_digest == theirs.weights_digest
        await first.leave()
        await second.leave()
        assert await answer(client) == expected
        (there,) = await client.fleet.stored_models()
        assert (there.model_id, there.is_whole, there.is_served) == (MODEL, True, True)
        assert there.source_names == ("mini-1", "mini-2")
        with pytest.raises(KakeyaError, match="is served on this node: unload it first") as error:
            await client.fleet.remove_model(MODEL)
        assert error.value.reason == "MODEL_IN_USE"
        await client.fleet.unload_model(MODEL)
        removed = await client.fleet.remove_model(MODEL)
        assert (removed.model_id, removed.byte_count) == (MODEL, pulled.byte_count)
        assert await client.fleet.stored_models() == ()
        with pytest.raises(NotFound, match="no pull brought") as error:
            await client.fleet.remove_model(MODEL)
        assert error.value.reason == "MODEL_NOT_KEPT"
    assert (small / "README.md").is_file()
    assert os.listdir(store) == ["locks"]


def holders(agent: RunningAgent, model: str = MODEL) -> list[str]:
    """Who serves the model, as a node knows."""
    return [
        view.card.name
        for view in agent.node.control.known.nodes()
        if any(offer.model_id == model for offer in view.card.models)
    ]


async def test_two_who_ask_share_one_pull_which_outlives_them_and_what_is_pulled_stays(
    start_agent: StartAgent, small: Path, held: HeldReads
) -> None:
    source = await start_agent("mini-1", serve=[f"proposer={small}", "proposer=ngram"])
    agent = await start_agent("mini-2", peers=[source.address])
    async with AsyncClient(agent.address) as client, AsyncClient(agent.address) as second:
        await until(lambda: bool(holders(agent)))
        held.go_on.set()
        await (
            ModelServiceStub(source.channel)
            .GetModelFiles(wire.GetModelFilesRequest(model_id=MODEL))
            .read()
        )
        held.go_on.clear()
        held.began.clear()
        pull = client.fleet.pull_model(MODEL, sources=[source.node_id])
        first = aiter(pull)
        await anext(first)
        joined = aiter(second.fleet.pull_model(MODEL))
        await anext(joined)
        await pull.aclose()
        held.go_on.set()
        async for _ in joined:
            pass
        assert (await second.fleet.pull_model(MODEL).wait()).was_there
        drafter = await second.fleet.load_model(MODEL, role=Role.PROPOSER).wait()
        assert drafter.offer.role is Role.PROPOSER
    assert len([each for each in kinds(agent) if each is EventKind.MODEL_PULLED]) == 1


async def test_a_pull_is_given_up_by_who_removes_what_it_brings(
    start_agent: StartAgent, small: Path, held: HeldReads, store: Path
) -> None:
    source = await start_agent("mini-1", serve=[f"verifier={small}"])
    agent = await start_agent("mini-2", peers=[source.address])
    async with AsyncClient(agent.address) as client:
        await until(lambda: bool(holders(agent)))
        waiting = asyncio.ensure_future(client.fleet.pull_model(MODEL).wait())
        await asyncio.to_thread(held.began.wait, PATIENCE)
        # Nothing of it has come.
        assert (await client.fleet.remove_model(MODEL)).byte_count == 0
        with pytest.raises(KakeyaError, match="was removed while it came") as error:
            await waiting
        assert error.value.reason == "MODEL_NOT_COPIED"
        assert len(agent.node.pulls) == 0
        held.go_on.set()
        assert not (await client.fleet.pull_model(MODEL).wait()).was_there
    states = [each.state.value for each in agent.node.activity.transfers.statuses()]
    assert states == [TransferState.FAILED, TransferState.DONE]


async def test_who_has_pulled_a_model_is_a_source_without_serving_it(
    start_agent: StartAgent, small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = await start_agent("mini-1", serve=[f"verifier={small}"])
    agent = await start_agent("mini-2", peers=[source.address])
    async with AsyncClient(agent.address) as client:
        await until(lambda: bool(holders(agent)))
        pulled = await client.fleet.pull_model(MODEL).wait()
        await source.node.remove_role(card.Role.VERIFIER, MODEL)
        await until(lambda: not holders(agent))
        # Its manifest is known without reading the files, also for one that asks for a piece first.
        weights = next(
            each
            for each in pulled_models.stored_models()[0].manifest.pieces()
            if each.file.endswith(".safetensors")
        )
        request = wire.ReadPieceRequest(model_id=MODEL, sha256=weights.sha256)
        data = b"".join(
            [each.data async for each in ModelServiceStub(agent.channel).ReadPiece(request)]
        )
        assert hashlib.sha256(data).digest() == weights.sha256
        found = await sources.holders(source.node.control.known, MODEL)
        assert [each.name for each in found] == ["mini-2"]
        files = await sources.files_of(found[0], MODEL)
        assert files.digest == pulled.files_digest


async def test_a_gguf_file_travels_as_it_is_and_each_machine_converts_it(
    start_agent: StartAgent,
    random_checkpoint: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(converted_models, "cache_folder", lambda: tmp_path / "converted")
    file = write_gguf(random_checkpoint("LlamaForCausalLM"), tmp_path / "My small.gguf")
    source = await start_agent("mini-1", serve=[f"verifier={file}"])
    agent = await start_agent("mini-2", peers=[source.address])
    name = "My small"
    async with AsyncClient(agent.address) as client, AsyncClient(source.address) as other:
        await until(lambda: bool(holders(agent, name)))
        pulled = await client.fleet.pull_model(name, sources=[source.node_id]).wait()
        assert (pulled.file_count, pulled.byte_count) == (1, file.stat().st_size)
        place = pulled_models.stored_place(name)
        assert place is not None
        assert place.read_bytes() == file.read_bytes()
        loaded = await client.fleet.load_model(name).wait()
        (theirs,) = (await other.fleet.node()).card.models
        assert loaded.offer.model_id == name
        assert loaded.offer.weights_digest == theirs.weights_digest


async def test_a_file_that_changes_is_not_taken_for_what_it_was(
    start_agent: StartAgent, small: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(small, tmp_path / "mine" / MODEL)
    source = await start_agent("mini-1", serve=[f"verifier={folder}"])
    stub = ModelServiceStub(source.channel)
    request = wire.GetModelFilesRequest(model_id=MODEL)
    told = [each async for each in stub.GetModelFiles(request)]
    names = [each.name for each in told[0].files.files]
    config = told[1].digests.sha256[:32]
    assert names[0] == "config.json"
    reading = wire.ReadPieceRequest(model_id=MODEL, sha256=config)
    (piece,) = [each async for each in stub.ReadPiece(reading)]
    assert piece.data == (folder / "config.json").read_bytes()
    (folder / "config.json").write_bytes(piece.data + b" ")
    assert await refusal(stub.ReadPiece(reading).read()) == "MODEL_NOT_FOUND"
    again = [each async for each in stub.GetModelFiles(request)]
    assert again[0].files.files[0].byte_count == len(piece.data) + 1
    new = wire.ReadPieceRequest(model_id=MODEL, sha256=again[1].digests.sha256[:32])
    (piece,) = [each async for each in stub.ReadPiece(new)]
    assert piece.data.endswith(b" ")


async def test_what_is_served_no_more_is_given_no_more(
    start_agent: StartAgent, small: Path
) -> None:
    agent = await start_agent(serve=[f"verifier={small}"])
    stub = ModelServiceStub(agent.channel)
    told = [each async for each in stub.GetModelFiles(wire.GetModelFilesRequest(model_id=MODEL))]
    reading = wire.ReadPieceRequest(model_id=MODEL, sha256=told[1].digests.sha256[:32])
    assert [each async for each in stub.ReadPiece(reading)]
    await agent.node.remove_role(card.Role.VERIFIER, MODEL)
    assert await refusal(stub.ReadPiece(reading).read()) == "MODEL_NOT_FOUND"


@pytest.mark.parametrize("name", ["tiny.gguf", "../small", "/etc", "absent", "", "a" * 2000])
async def test_nothing_is_read_by_a_path_or_of_what_is_not_served(
    start_agent: StartAgent, small: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small)
    agent = await start_agent(serve=["proposer=ngram"])
    stub = ModelServiceStub(agent.channel)
    reason = "BAD_REQUEST" if name in ("", "a" * 2000) else "MODEL_NOT_FOUND"
    for each in (name, str(small), "ngram", "tiny"):
        expected = reason if each == name else "MODEL_NOT_FOUND"
        files = stub.GetModelFiles(wire.GetModelFilesRequest(model_id=each))
        assert await refusal(files.read()) == expected
        piece = stub.ReadPiece(wire.ReadPieceRequest(model_id=each, sha256=bytes(32)))
        assert await refusal(piece.read()) == expected
    short = stub.ReadPiece(wire.ReadPieceRequest(model_id="tiny", sha256=bytes(31)))
    assert await refusal(short.read()) == "BAD_REQUEST"


async def test_what_nobody_has_is_said_and_the_hub_is_asked_for_its_own_names_alone(
    start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await start_agent("mini-1")
    asked = []

    def from_hub(name: str, progress: Progress | None) -> None:
        asked.append(name)
        assert progress is not None
        progress(5, 7)

    monkeypatch.setattr(agent.node.pulls, "_from_hub", from_hub)
    async with AsyncClient(agent.address) as client:
        for name in ("absent", "./absent", "../a/b", "a/..", "/etc", "x.gguf"):
            with pytest.raises(ModelNotFound, match="no other node of the fleet has"):
                await client.fleet.pull_model(name).wait()
        with pytest.raises(NodeNotFound):
            await client.fleet.pull_model("absent", sources=["ab" * 32]).wait()
        with pytest.raises(BadRequest, match="of other nodes"):
            await client.fleet.pull_model("absent", sources=[agent.node_id]).wait()
        with pytest.raises(BadRequest, match="9 ids"):
            await client.fleet.pull_model("absent", sources=["ab" * 32] * 9).wait()
        assert asked == []
        pulled = await client.fleet.pull_model("organisation/name").wait()
        assert pulled == PulledModel("organisation/name", 0, 0, "", was_there=False, sources=())
        assert asked == ["organisation/name"]
        there = await client.fleet.pull_model("tiny").wait()
        assert there.was_there
    statuses = agent.node.activity.transfers.statuses()
    assert [each.state.value for each in statuses[-2:]] == [
        TransferState.FAILED,
        TransferState.DONE,
    ]
    assert kinds(agent).count(EventKind.PULL_FAILED) == 7


async def test_pulls_are_as_many_as_may_be_and_end_with_the_node(
    start_agent: StartAgent, small: Path, held: HeldReads
) -> None:
    source = await start_agent("mini-1", serve=[f"verifier={small}"])
    agent = await start_agent("mini-2", peers=[source.address])
    await until(lambda: bool(holders(agent)))
    most = agent.node.ground.allowances.limits.models.pulls
    async with AsyncClient(agent.address) as client:
        pulls = []
        for number in range(most):
            # All hang on reading the files of the one model, by whatever name.
            name = MODEL if not number else f"{MODEL}-{number}"
            pulls.append(client.fleet.pull_model(name, sources=[source.node_id]))
        waiting = asyncio.ensure_future(pulls[0].wait())
        await asyncio.to_thread(held.began.wait, PATIENCE)
        with pytest.raises(KakeyaError, match="neither serves 'small-1'"):
            await pulls[1].wait()
        (bound,) = [each for each in await client.fleet.limits() if each.name == "models.pulls"]
        assert (bound.used, bound.limit) == (1, most)
        await client.fleet.leave(0.1)
        with pytest.raises(Draining):
            await waiting
    held.go_on.set()
    await agent.task


async def test_without_an_authority_only_its_own_machine_pulls_and_removes(
    start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await start_agent()
    monkeypatch.setattr(network, "is_own_address", lambda _: False)
    async with AsyncClient(agent.address) as client:
        with pytest.raises(NotLoopback, match="from its own machine only"):
            await client.fleet.pull_model("tiny").wait()
        with pytest.raises(NotLoopback, match="from its own machine only"):
            await client.fleet.remove_model("tiny")
        assert await client.fleet.stored_models() == ()


async def test_a_keeper_has_a_member_pull_from_another_and_load_it_by_its_name(
    home: Home, small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home.let_in("b")
    home.let_in("c")
    b = await home.start("b", serve=[f"verifier={small}"])
    c = await home.start("c")
    await until(lambda: bool(holders(c)))
    monkeypatch.chdir(tmp_path)
    async with channel_to(c.address, home.keeper) as keepers:
        stub = ModelServiceStub(keepers)
        *_, last = [
            each async for each in stub.PullModel(wire.PullModelRequest(model=MODEL), timeout=60)
        ]
        assert [each.node_name for each in last.pulled.sources] == ["b"]
        loading = stub.LoadModel(wire.LoadModelRequest(model=MODEL), timeout=60)
        *_, loaded = [each async for each in loading]
        assert loaded.loaded.offer.model_id == MODEL
        removing = stub.RemoveModel(wire.RemoveModelRequest(model_id=MODEL), timeout=60)
        assert await refusal(removing) == "MODEL_IN_USE"
    assert holders(b)


async def test_readers_have_their_share(
    start_agent: StartAgent, small: Path, held: HeldReads
) -> None:
    source = await start_agent("mini-1", serve=[f"verifier={small}"])
    stub = ModelServiceStub(source.channel)
    held.go_on.set()
    request = wire.GetModelFilesRequest(model_id=MODEL)
    digests = [each async for each in stub.GetModelFiles(request)][1].digests.sha256
    held.go_on.clear()
    reading = wire.ReadPieceRequest(model_id=MODEL, sha256=digests[:32])
    most = source.node.ground.allowances.limits.models.read_bytes // (2 << 20)
    calls = [stub.ReadPiece(reading) for _ in range(most)]
    ends = [asyncio.ensure_future(_reason(call)) for call in calls]
    await until(lambda: any(end.done() for end in ends))
    assert {end.result() for end in ends if end.done()} == {"RESOURCE_EXHAUSTED"}
    assert sum(not end.done() for end in ends) >= most * 4 // 5
    held.go_on.set()
    assert set(await asyncio.gather(*ends)) == {"", "RESOURCE_EXHAUSTED"}
    (last,) = [each async for each in stub.ReadPiece(reading)]
    assert last.data


async def _reason(
    call: grpc.aio.UnaryStreamCall[wire.ReadPieceRequest, wire.ReadPieceResponse],
) -> str:
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        return kakeya_error(error, "").reason
    return ""
