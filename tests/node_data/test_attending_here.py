"""Sessions that read back what an archive keeps for them, and attend to it themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.node.roles.archive.kv_reads import KvReading, KvReads
from kakeya_fleet.node.roles.archive.session_restorers import RestorerSettings
from kakeya_fleet.node.rpc.refusals import LinkUnsupported
from tests.support import calls
from tests.support import neighbourhood as nodes

RESTORED = placement_pb2.KV_STRATEGY_RESTORED
FULL = placement_pb2.KV_STRATEGY_FULL
AT_ARCHIVE = placement_pb2.RESTORER_ATTEND_ARCHIVE
AT_VERIFIER = placement_pb2.RESTORER_ATTEND_VERIFIER
PROMPT = [(7 * index + index // 11) % 96 for index in range(180)]
MAX_TOKENS = 60
SLOTS = 256
POSITION_BYTES = 2 * 2 * 16 * 4
"""Keys and values of 16 float32 in two layers with one head."""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def around() -> AsyncIterator[Any]:
    async with nodes.Neighbourhood() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def verifier_node(around: Any, checkpoint: Path) -> Any:
    settings = nodes.RoleSettings(
        kv_budget_bytes=64 << 20,
        restorers=RestorerSettings(deadline=1.0, rebuild=1.0),
    )
    return await around.start("verifier", f"verifier={checkpoint}", settings=settings)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def archive(around: Any) -> Any:
    return await around.start("archive", "archive=64MiB")


@pytest.fixture
def caller(verifier_node: Any, archive: Any) -> Any:
    return calls.Caller(verifier_node.channel)


async def opened(caller: Any, attend: int = AT_VERIFIER, node_id: str = "", **fields: Any) -> Any:
    strategy = fields.pop("kv_strategy", RESTORED)
    restorer = placement_pb2.Restorer(node_id=node_id, attend=attend)
    return await caller.stub.CreateSession(
        runtime_pb2.CreateSessionRequest(
            model_id="random",
            kv_strategy=strategy,
            sink_tokens=4,
            window_tokens=32,
            speculation=runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF),
            restorer=fields.pop("restorer", restorer if strategy == RESTORED else None),
            **fields,
        ),
        timeout=30,
    )


async def restorer_of(caller: Any, session_id: str) -> Any:
    request = runtime_pb2.GetSessionInfoRequest(session_id=session_id)
    return (await caller.stub.GetSessionInfo(request)).session.restorer


async def stream_of(caller: Any, *chunks: list[int], **fields: Any) -> list[int]:
    session = await opened(caller, **fields)
    for chunk in chunks or (PROMPT,):
        await caller.append(session.session_id, chunk)
    return (await caller.generate(session.session_id, MAX_TOKENS)).token_ids


async def full_stream(caller: Any) -> list[int]:
    return await stream_of(caller, kv_strategy=FULL)


async def refusal(calls: ModuleType, awaitable: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return calls.refused(caught.value)


async def test_the_stream_is_the_same_wherever_it_is_attended_to(caller: Any) -> None:
    full = await full_stream(caller)
    assert await stream_of(caller) == full
    assert await stream_of(caller, attend=AT_ARCHIVE) == full
    pieces = [PROMPT[start : start + 13] for start in range(0, len(PROMPT), 13)]
    assert await stream_of(caller, *pieces) == full


async def test_the_session_says_where_it_attends_and_what_lies_there(
    caller: Any, verifier_node: Any, archive: Any
) -> None:
    read = "kakeya_restorer_read_bytes_total"
    before = verifier_node.metric(read)
    queries = archive.metric("kakeya_archive_query_seconds_count")
    session = await opened(caller)
    assert session.plan.archive.node_name == "archive"
    assert any("attends to what is kept there itself" in why for why in session.plan.reasons)
    await caller.append(session.session_id, PROMPT)
    await caller.generate(session.session_id, 1)
    told = await restorer_of(caller, session.session_id)
    assert (told.restorer.attend, told.restorer.node_id) == (AT_VERIFIER, "archive")
    # As the archive told: all slots of its first segment.
    assert told.evicted_bytes == SLOTS * POSITION_BYTES
    assert verifier_node.metric(read) > before
    # The archive has not computed.
    assert archive.metric("kakeya_archive_query_seconds_count") == queries
    there = await opened(caller, attend=AT_ARCHIVE)
    told = await restorer_of(caller, there.session_id)
    assert told.restorer.attend == AT_ARCHIVE


async def test_a_step_reads_each_evicted_position_of_each_layer_once(
    caller: Any, verifier_node: Any
) -> None:
    session = await opened(caller)
    await caller.append(session.session_id, PROMPT)
    await caller.generate(session.session_id, 1)
    read = "kakeya_restorer_read_bytes_total"
    before = verifier_node.metric(read)
    forwards = (await caller.info(session.session_id)).forward_count
    await caller.generate(session.session_id, 8)
    steps = (await caller.info(session.session_id)).forward_count - forwards
    assert steps == 8
    each = (verifier_node.metric(read) - before) / steps
    told = await restorer_of(caller, session.session_id)
    whole = told.evicted_token_count * POSITION_BYTES
    assert 0.8 * whole < each < 1.1 * whole


async def test_sessions_do_not_mix(caller: Any) -> None:
    other = [(5 * index) % 96 for index in range(150)]
    full = await full_stream(caller), await stream_of(caller, other, kv_strategy=FULL)
    both = await asyncio.gather(stream_of(caller), stream_of(caller, other))
    assert tuple(both) == full


async def test_a_fork_reads_from_an_archive_of_its_own(caller: Any) -> None:
    expected = await full_stream(caller)
    session = await opened(caller)
    await caller.append(session.session_id, PROMPT)
    forked = await caller.stub.ForkSession(
        runtime_pb2.ForkSessionRequest(session_id=session.session_id, history_length=len(PROMPT))
    )
    await caller.append(session.session_id, [3] * 100)
    assert (await caller.generate(forked.session_id, MAX_TOKENS)).token_ids == expected
    assert (await restorer_of(caller, forked.session_id)).restorer.attend == AT_VERIFIER


async def test_closed_sessions_leave_neither_archives_nor_links(
    caller: Any, archive: Any, verifier_node: Any
) -> None:
    await stream_of(caller)
    page = await caller.stub.ListSessions(runtime_pb2.ListSessionsRequest())
    for each in page.sessions:
        await caller.stub.CloseSession(runtime_pb2.CloseSessionRequest(session_id=each.session_id))
    await calls.until(lambda: archive.metric("kakeya_archives_open") == 0)
    for node in (archive, verifier_node):
        await calls.until(lambda node=node: not node.roles.tensor_links())


@pytest.mark.parametrize("when", ["append", "generate"])
async def test_a_lost_archive_is_made_anew_with_the_same_stream(
    caller: Any, around: Any, when: str
) -> None:
    full = await full_stream(caller)
    spare = await around.start(f"spare-{when}", "archive=64MiB")
    session = await opened(caller, node_id=spare.node_id)
    await caller.append(session.session_id, PROMPT[:-20] if when == "append" else PROMPT)
    await spare.roles.close()
    await around.start(spare.node_id, "archive=64MiB")
    if when == "append":
        await caller.append(session.session_id, PROMPT[-20:])
    assert (await caller.generate(session.session_id, MAX_TOKENS)).token_ids == full
    told = await restorer_of(caller, session.session_id)
    assert (told.rebuild_count >= 1, told.lost) == (True, False)
    assert told.restorer.attend == AT_VERIFIER
    around.directory.set_liveness(spare.node_id, Liveness.DEAD)


@pytest.mark.parametrize("moment", [0, 1, 7, 40])
async def test_a_link_that_ends_at_any_read_costs_no_token(
    caller: Any, verifier_node: Any, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    full = await full_stream(caller)
    session = await opened(caller)
    await caller.append(session.session_id, PROMPT)
    answer = KvReading._answer
    count = 0

    async def torn(reading: KvReading, read: Any) -> None:
        nonlocal count
        count += 1
        if count == moment + 1:
            await reading._link.close()
        await answer(reading, read)

    monkeypatch.setattr(KvReading, "_answer", torn)
    assert (await caller.generate(session.session_id, MAX_TOKENS)).token_ids == full
    assert count > moment
    assert (await restorer_of(caller, session.session_id)).rebuild_count == 1


async def test_a_node_that_opens_no_such_link_is_named(
    caller: Any, around: Any, monkeypatch: pytest.MonkeyPatch, archive: Any
) -> None:
    def unsupported(_reads: KvReads, _request: Any) -> None:
        raise LinkUnsupported("links for features alone")

    monkeypatch.setattr(KvReads, "check", unsupported)
    error = await refusal(calls, opened(caller))
    assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_ARCHIVE")
    assert "links for features alone" in error.text
    # What was opened there is given back.
    monkeypatch.undo()
    page = await caller.stub.ListSessions(runtime_pb2.ListSessionsRequest())
    for each in page.sessions:
        await caller.stub.CloseSession(runtime_pb2.CloseSessionRequest(session_id=each.session_id))
    await calls.until(lambda: archive.metric("kakeya_archives_open") == 0)


async def test_places_that_cannot_be_are_refused(caller: Any) -> None:
    identity = placement_pb2.RESTORER_KIND_IDENTITY
    for wrong in (
        placement_pb2.Restorer(attend=17),
        placement_pb2.Restorer(kind=identity, attend=AT_VERIFIER),
        placement_pb2.Restorer(kind=identity, attend=AT_ARCHIVE),
    ):
        error = await refusal(calls, opened(caller, restorer=wrong))
        assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST")
        assert "restorer.attend" in error.text
