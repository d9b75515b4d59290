"""Sessions whose evicted positions a learned map restores, on another node's archive."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
import torch

from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.engine.backends import arithmetic_of, load_encoder
from kakeya_fleet.engine.backends.torch_backend.context_products import CompiledProducts
from kakeya_fleet.engine.backends.torch_backend.projection import (
    Projection,
    ProjectionConfig,
    RestoredLayer,
    Source,
    save_projection,
)
from kakeya_fleet.engine.contracts.feature_encoder import PairedProducts
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind
from kakeya_fleet.engine.models.digests import weights_digest
from kakeya_fleet.node.roles.archive.session_restorer import RestorerChoice
from scripts.train import tiny_dflash
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.checkpoint import POSITION_BYTES

RESTORED = placement_pb2.KV_STRATEGY_RESTORED
PROJECTION = placement_pb2.RESTORER_KIND_PROJECTION
PROMPT = [(7 * index + index // 11) % 96 for index in range(160)]
MAX_TOKENS = 20
WIDTH, KV_HEADS, HEAD_DIM, LAYERS = 32, 1, 32, 2
DEPOSITED = 16
"""Numbers of the good map."""
pytestmark = pytest.mark.asyncio(loop_scope="module")


def write_map(drafter: Path, verifier_digest: str, seed: int, rank: int) -> None:
    """A random learned map of a rank in the drafter's folder."""
    config = ProjectionConfig(
        source=Source.FEATURES,
        width=WIDTH,
        rank=rank,
        layers=(RestoredLayer(KV_HEADS, HEAD_DIM, key_norm=True),) * LAYERS,
        norm_eps=1e-6,
        rotary_scaling=1.0,
        verifier_model_id="random",
        verifier_digest=verifier_digest,
        encoder_digest=load_encoder(drafter).spec.digest,
    )
    torch.manual_seed(seed)
    projection = Projection(config)
    with torch.no_grad():
        projection.inverse_frequencies.copy_(torch.rand(HEAD_DIM // 2))
        projection.up.weight.normal_(std=0.5)
    save_projection(projection, drafter / "restorer", torch.float32)


@pytest.fixture(scope="module")
def drafters(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One drafter with its map, one of the same name with another map, one for another verifier."""
    root = tmp_path_factory.mktemp("drafters")
    digest = weights_digest(checkpoint)
    folders = {}
    for name, seed, verifier_digest in (
        ("good", 0, digest),
        ("other", 1, digest),
        ("foreign", 0, "f" * 64),
    ):
        folder = root / name / ("foreign" if name == "foreign" else "drafter")
        folders[name] = tiny_dflash.write_random_dflash(folder, checkpoint, manifest=False)
        rank = DEPOSITED if name == "good" else 0
        write_map(folders[name], verifier_digest, seed, rank)
    return folders


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def around(checkpoint: Path, drafters: dict[str, Path]) -> AsyncIterator[Any]:
    def served(name: str) -> str:
        return f"proposer={drafters[name]}@{checkpoint}"

    async with nodes.Neighbourhood() as started:
        await started.start("verifier", f"verifier={checkpoint}", served("good"), served("foreign"))
        await started.start("archive", served("good"), "archive=64MiB")
        await started.start("stale", served("other"), "archive=64MiB")
        await started.start("bare", "archive=64MiB")
        yield started


@pytest.fixture
def caller(around: nodes.Neighbourhood) -> calls.Caller:
    return calls.Caller(around.directory.channels["verifier"])


async def opened(caller: calls.Caller, model_id: str = "", node_id: str = "archive") -> Any:
    return await caller.stub.CreateSession(
        runtime_pb2.CreateSessionRequest(
            model_id="random",
            kv_strategy=RESTORED,
            sink_tokens=4,
            window_tokens=32,
            speculation=runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF),
            restorer=placement_pb2.Restorer(kind=PROJECTION, model_id=model_id, node_id=node_id),
        ),
        timeout=30,
    )


async def test_the_vectors_are_made_as_their_verifier_computes(around: nodes.Neighbourhood) -> None:
    """Its arithmetic tells of it: a verifier of equal arithmetic elsewhere sees the same bits."""
    role = around._nodes[0].roles.verifier
    (served,) = role.by_model.values()
    choice = RestorerChoice(RestorerKind.PROJECTION)
    made: dict[str, Any] = {}
    for backend in ("torch", "mlx"):
        info = replace(served.verifier.info, backend=backend)
        _, made[backend] = await role._restorers.resolve(choice, info)
    assert isinstance(made["mlx"]._products, PairedProducts)
    compiled = "decoder" in arithmetic_of(served.verifier)
    assert isinstance(made["torch"]._products, CompiledProducts if compiled else PairedProducts)


async def test_the_stream_is_that_of_the_map_whatever_the_chunks(caller: calls.Caller) -> None:
    streams = []
    for step in (len(PROMPT), 7):
        # Its verifier alone names the map: it is the only one that belongs to it.
        session = await opened(caller, "drafter" if step == 7 else "")
        for start in range(0, len(PROMPT), step):
            await caller.append(session.session_id, PROMPT[start : start + step])
        streams.append((await caller.generate(session.session_id, MAX_TOKENS)).token_ids)
    assert streams[0] == streams[1]
    request = runtime_pb2.GetSessionInfoRequest(session_id=session.session_id)
    info = (await caller.stub.GetSessionInfo(request)).session.restorer
    assert (info.restorer.kind, info.restorer.model_id) == (PROJECTION, "drafter")
    assert len(info.digest) == 64
    assert info.node_name == "archive"
    assert info.evicted_bytes > 0
    # It is a map, and no archive: what it restores is not what full attention sees.
    exact = await caller.open(model_id="random", max_history_tokens=0)
    await caller.append(exact, PROMPT)
    assert (await caller.generate(exact, MAX_TOKENS)).token_ids != streams[0]


async def test_the_plan_counts_the_vectors_of_what_is_not_evicted(caller: calls.Caller) -> None:
    # 256 slots, as the planner counts: keys and values of each, and 64 bytes of a vector.
    request = runtime_pb2.CreateSessionRequest(
        model_id="random",
        kv_strategy=RESTORED,
        sink_tokens=4,
        window_tokens=188,
        restorer=placement_pb2.Restorer(kind=PROJECTION, node_id="archive"),
    )
    session = await caller.stub.CreateSession(request, timeout=30)
    info = await caller.info(session.session_id)
    assert info.kv_bytes == 256 * (POSITION_BYTES + 4 * DEPOSITED)
    assert session.plan.kv_bytes == info.plan.kv_bytes == info.kv_bytes
    assert any("144.0 KiB" in reason for reason in session.plan.reasons)


async def test_a_rebuilt_archive_has_the_same_map_or_none(
    around: nodes.Neighbourhood, caller: calls.Caller, drafters: dict[str, Path], checkpoint: Path
) -> None:
    session = await opened(caller)
    await caller.append(session.session_id, PROMPT)
    expected = (await caller.generate(session.session_id, MAX_TOKENS)).token_ids
    spare = await around.start(
        "spare", f"proposer={drafters['good']}@{checkpoint}", "archive=64MiB"
    )
    session = await opened(caller, node_id="spare")
    await caller.append(session.session_id, PROMPT)
    await spare.roles.close()
    await around.start("spare", f"proposer={drafters['good']}@{checkpoint}", "archive=64MiB")
    assert (await caller.generate(session.session_id, MAX_TOKENS)).token_ids == expected


async def test_another_map_is_never_taken_for_it(caller: calls.Caller) -> None:
    stale = await calls.refused_by(opened(caller, node_id="stale"))
    assert (stale.code, stale.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "RESTORER_MISMATCH",
    )
    # A node that has no such drafter has no map either.
    bare = await calls.refused_by(opened(caller, node_id="bare"))
    assert (bare.code, bare.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_ARCHIVE")
    assert "no drafter 'drafter'" in bare.text


async def test_a_map_of_another_verifier_is_named_as_such(caller: calls.Caller) -> None:
    foreign = await calls.refused_by(opened(caller, "foreign"))
    assert (foreign.code, foreign.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "TRAINED_FOR_ANOTHER",
    )
    assert foreign.metadata["trained_for"] == "f" * 64


async def test_a_map_whose_drafter_has_another_encoder_is_refused(
    drafters: dict[str, Path], checkpoint: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "drafter"
    shutil.copytree(drafters["good"], folder)
    config = json.loads((folder / "restorer" / "config.json").read_text())
    config["encoder_digest"] = "e" * 64
    (folder / "restorer" / "config.json").write_text(json.dumps(config))
    async with nodes.Neighbourhood() as around:
        await around.start("verifier", f"verifier={checkpoint}", f"proposer={folder}@{checkpoint}")
        await around.start("archive", f"proposer={folder}@{checkpoint}", "archive=64MiB")
        caller = calls.Caller(around.directory.channels["verifier"])
        error = await calls.refused_by(opened(caller))
    assert error.reason == "TRAINED_FOR_ANOTHER"
