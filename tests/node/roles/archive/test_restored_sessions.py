"""Sessions whose evicted positions are kept by another node, over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.engine.errors import RestorerRefused
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.node.roles.archive.archives import Archive, Archives
from kakeya_fleet.node.roles.archive.position_tags import Tags
from kakeya_fleet.node.roles.archive.session_restorers import RestorerSettings
from kakeya_fleet.node.roles.settings import RoleSettings
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.patience import PATIENCE_SECONDS

RESTORED = placement_pb2.KV_STRATEGY_RESTORED
FULL = placement_pb2.KV_STRATEGY_FULL
IDENTITY = placement_pb2.RESTORER_KIND_IDENTITY
# Of a version to come.
UNKNOWN: placement_pb2.RestorerKind.ValueType = 17  # type: ignore[assignment] # no member
PROJECTION = placement_pb2.RESTORER_KIND_PROJECTION
PROMPT = [(7 * index + index // 11) % 96 for index in range(180)]
MAX_TOKENS = 20

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def around() -> AsyncIterator[nodes.Neighbourhood]:
    async with nodes.Neighbourhood() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def verifier_node(around: nodes.Neighbourhood, checkpoint: Path) -> nodes.Node:
    settings = RoleSettings(
        kv_budget_bytes=64 << 20,
        # No archive here is late; one that is gone is found by its connection.
        restorers=RestorerSettings(deadline=30.0, rebuild=2.0),
    )
    return await around.start("verifier", f"verifier={checkpoint}", settings=settings)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def archive(around: nodes.Neighbourhood) -> nodes.Node:
    return await around.start("archive", "archive=64MiB")


@pytest.fixture
def caller(verifier_node: nodes.Node, archive: nodes.Node) -> calls.Caller:
    return calls.Caller(verifier_node.channel)


async def opened(
    caller: calls.Caller, restorer: placement_pb2.Restorer | None = None, **fields: Any
) -> runtime_pb2.CreateSessionResponse:
    return await caller.stub.CreateSession(
        runtime_pb2.CreateSessionRequest(
            model_id="random",
            kv_strategy=fields.pop("kv_strategy", RESTORED),
            sink_tokens=4,
            window_tokens=32,
            speculation=runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF),
            restorer=restorer,
            **fields,
        ),
        timeout=PATIENCE_SECONDS,
    )


async def stream_of(
    caller: calls.Caller,
    kv_strategy: placement_pb2.KvStrategy.ValueType,
    restorer: placement_pb2.Restorer | None = None,
) -> list[int]:
    session = await opened(caller, restorer, kv_strategy=kv_strategy)
    await caller.append(session.session_id, PROMPT)
    return (await caller.generate(session.session_id, MAX_TOKENS)).token_ids


async def test_an_archive_gives_back_what_full_attention_sees(caller: calls.Caller) -> None:
    full = await stream_of(caller, FULL)
    assert await stream_of(caller, RESTORED) == full
    identity = placement_pb2.Restorer(kind=IDENTITY)
    assert await stream_of(caller, RESTORED, identity) == full
    assert await stream_of(caller, placement_pb2.KV_STRATEGY_SINK_WINDOW) != full


async def test_the_session_says_where_its_evicted_positions_are(
    caller: calls.Caller, verifier_node: nodes.Node, archive: nodes.Node
) -> None:
    session = await opened(caller)
    assert session.plan.archive.node_name == "archive"
    assert any("archive" in reason for reason in session.plan.reasons)
    await caller.append(session.session_id, PROMPT)
    before = await caller.info(session.session_id)
    assert before.kv_strategy == RESTORED
    assert before.restorer.node_name == "archive"
    assert before.restorer.restorer.node_id == archive.node_id
    # The next query is at position 179, whose window begins at 148.
    assert before.restorer.evicted_token_count in range(len(PROMPT) - 4 - 64, len(PROMPT) - 4)
    assert before.restorer.evicted_bytes > 0
    await caller.append(session.session_id, PROMPT)
    after = await caller.info(session.session_id)
    assert after.kv_bytes == before.kv_bytes
    more = after.restorer.evicted_token_count - before.restorer.evicted_token_count
    # They leave by sixteen.
    assert abs(more - len(PROMPT)) < 16
    assert archive.metric("kakeya_archives_open") >= 1
    assert archive.metric("kakeya_archive_bytes") >= after.restorer.evicted_bytes
    assert verifier_node.metric("kakeya_restorer_round_trip_seconds_count") > 0


async def test_sessions_of_one_archive_do_not_mix(caller: calls.Caller) -> None:
    other_prompt = [(5 * index) % 96 for index in range(150)]
    alone = [await stream_of(caller, FULL)]
    session = await opened(caller, kv_strategy=FULL)
    await caller.append(session.session_id, other_prompt)
    alone.append((await caller.generate(session.session_id, MAX_TOKENS)).token_ids)
    sessions = [await opened(caller) for _ in range(2)]

    async def run(session_id: str, prompt: list[int]) -> list[int]:
        for start in range(0, len(prompt), 50):
            await caller.append(session_id, prompt[start : start + 50])
        return (await caller.generate(session_id, MAX_TOKENS)).token_ids

    together = await asyncio.gather(
        run(sessions[0].session_id, PROMPT), run(sessions[1].session_id, other_prompt)
    )
    assert list(together) == alone


async def test_a_fork_has_an_archive_of_its_own(caller: calls.Caller) -> None:
    session = await opened(caller)
    await caller.append(session.session_id, PROMPT)
    expected = (await caller.generate(session.session_id, MAX_TOKENS)).token_ids
    forked = await caller.stub.ForkSession(
        runtime_pb2.ForkSessionRequest(session_id=session.session_id, history_length=len(PROMPT))
    )
    await caller.append(session.session_id, [3] * 100)
    assert (await caller.generate(forked.session_id, MAX_TOKENS)).token_ids == expected
    assert (await caller.info(forked.session_id)).restorer.node_name == "archive"


async def test_a_lost_archive_is_made_anew_with_the_same_stream(
    caller: calls.Caller, around: nodes.Neighbourhood, verifier_node: nodes.Node
) -> None:
    """While an append is computed, and again while an answer is."""
    full = await stream_of(caller, FULL)
    spare = await around.start("spare", "archive=64MiB")
    session = await opened(caller, placement_pb2.Restorer(node_id="spare"))
    await caller.append(session.session_id, PROMPT[:-20])
    assert (await caller.info(session.session_id)).restorer.node_name == "spare"
    for rebuild_count, piece in enumerate((PROMPT[-20:], []), start=1):
        await spare.roles.close()
        spare = await around.start("spare", "archive=64MiB")
        if piece:
            await caller.append(session.session_id, piece)
        else:
            stream = await caller.generate(session.session_id, MAX_TOKENS)
            assert stream.token_ids == full
        rebuilt = (await caller.info(session.session_id)).restorer
        assert (rebuilt.rebuild_count, rebuilt.lost) == (rebuild_count, False)
    assert verifier_node.metric("kakeya_restorer_rebuilds_total", outcome="rebuilt") >= 2
    around.directory.set_liveness("spare", Liveness.DEAD)


async def test_without_an_archive_the_session_waits_then_fails_by_name_and_lives(
    caller: calls.Caller, around: nodes.Neighbourhood
) -> None:
    full = await stream_of(caller, FULL)
    lonely = await around.start("lonely", "archive=64MiB")
    session = await opened(caller, placement_pb2.Restorer(node_id="lonely"))
    await caller.append(session.session_id, PROMPT)
    await lonely.roles.close()
    error = await calls.refused_by(caller.generate(session.session_id, MAX_TOKENS))
    assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "RESTORER_LOST")
    assert error.retry_seconds
    assert (await caller.info(session.session_id)).restorer.lost
    # Had it waited as long as an archive is waited for, it would be told that none came.
    stream = await caller.generate(session.session_id, MAX_TOKENS, deadline_seconds=0.2)
    assert stream.done.stop_reason == runtime_pb2.STOP_REASON_DEADLINE
    assert stream.token_ids == []
    await around.start("lonely", "archive=64MiB")
    assert (await caller.generate(session.session_id, MAX_TOKENS)).token_ids == full
    assert not (await caller.info(session.session_id)).restorer.lost
    around.directory.set_liveness("lonely", Liveness.DEAD)


async def test_a_full_archive_refuses_and_another_is_taken(
    caller: calls.Caller, around: nodes.Neighbourhood
) -> None:
    await around.start("small", "archive=1MiB")
    request = placement_pb2.Restorer(node_id="small")
    # 256 positions of the model's 2 layers of 2 heads of 16 values: 64 KiB of K/V a session.
    sessions = []
    error = None
    for _ in range(64):
        try:
            session = await opened(caller, request)
        except grpc.aio.AioRpcError as refused:
            error = calls.refused(refused)
            break
        sessions.append(session)
        await caller.append(session.session_id, PROMPT)
    assert error is not None
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "ARCHIVE_FULL")
    assert error.retry_seconds
    assert sessions
    elsewhere = await opened(caller)
    assert elsewhere.plan.archive.node_name == "archive"
    around.directory.set_liveness("small", Liveness.DEAD)


async def test_an_archive_that_refuses_each_time_is_given_up_and_the_session_lives(
    caller: calls.Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = await stream_of(caller, FULL)
    session = await opened(caller)
    deposit = Archives.deposit

    def refusing(
        archives: Archives, archive: Archive, first: int, evicted: Any, tags: Tags
    ) -> None:
        if first > 60:
            raise RestorerRefused("never")
        deposit(archives, archive, first, evicted, tags)

    with monkeypatch.context() as patch:
        patch.setattr(Archives, "deposit", refusing)
        for piece in (PROMPT[:-1], PROMPT[-1:]):
            error = await calls.refused_by(caller.append(session.session_id, piece))
            assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "RESTORER_LOST")
            assert (await caller.info(session.session_id)).restorer.lost
    # What was sent is in the history: an append that fails so keeps its tokens.
    assert (await caller.generate(session.session_id, MAX_TOKENS)).token_ids == full
    assert not (await caller.info(session.session_id)).restorer.lost


async def test_what_cannot_be_restored_is_refused_by_name(
    caller: calls.Caller, around: nodes.Neighbourhood
) -> None:
    no_such = await calls.refused_by(opened(caller, placement_pb2.Restorer(node_id="nobody")))
    assert (no_such.code, no_such.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "NO_ARCHIVE",
    )
    assert "fleet join --serve archive=1GiB" in no_such.text
    map_of = placement_pb2.Restorer(kind=PROJECTION, model_id="../../etc")
    no_map = await calls.refused_by(opened(caller, map_of))
    assert (no_map.code, no_map.reason) == (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")
    mistakes: list[dict[str, Any]] = [
        {"kv_strategy": FULL, "restorer": placement_pb2.Restorer(kind=PROJECTION)},
        {"kv_strategy": FULL, "restorer": placement_pb2.Restorer(node_id="archive")},
        {"restorer": placement_pb2.Restorer(kind=IDENTITY, node_id="archive")},
        {"restorer": placement_pb2.Restorer(model_id="tiny-dflash")},
        {"restorer": placement_pb2.Restorer(kind=UNKNOWN)},
        {"kv_strategy": 0, "restorer": placement_pb2.Restorer(node_id="archive")},
    ]
    for wrong in mistakes:
        error = await calls.refused_by(opened(caller, **wrong))
        assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST")
    around.directory.set_liveness("archive", Liveness.DEAD)
    dead = await calls.refused_by(opened(caller))
    # Slow to answer for a moment, it is better than none.
    around.directory.set_liveness("archive", Liveness.SUSPECT)
    await caller.close((await opened(caller)).session_id)
    around.directory.set_liveness("archive", Liveness.ALIVE)
    assert dead.reason == "NO_ARCHIVE"
    assert "dead" in dead.text


async def test_who_leaves_while_an_archive_is_awaited_leaves_nothing_behind(
    caller: calls.Caller, around: nodes.Neighbourhood, verifier_node: nodes.Node
) -> None:
    full = await stream_of(caller, FULL)
    brief = await around.start("brief", "archive=64MiB")
    session = await opened(caller, placement_pb2.Restorer(node_id="brief"))
    await caller.append(session.session_id, PROMPT)
    await brief.roles.close()
    lost = verifier_node.metric("kakeya_restorer_rebuilds_total", outcome="lost")
    request = runtime_pb2.GenerateRequest(session_id=session.session_id, max_tokens=MAX_TOKENS)
    generation = caller.stub.Generate(request)

    async def is_lost() -> bool:
        return bool((await caller.info(session.session_id)).restorer.lost)

    while not await is_lost():
        pass
    generation.cancel()
    await calls.until(lambda: verifier_node.metric("kakeya_sessions_generating") == 0)
    assert verifier_node.metric("kakeya_restorer_rebuilds_total", outcome="lost") == lost
    back = await around.start("brief", "archive=64MiB")
    assert (await caller.generate(session.session_id, MAX_TOKENS)).token_ids == full
    await caller.stub.CloseSession(runtime_pb2.CloseSessionRequest(session_id=session.session_id))
    await calls.until(lambda: back.metric("kakeya_archives_open") == 0)
    around.directory.set_liveness("brief", Liveness.DEAD)
