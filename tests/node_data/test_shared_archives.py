"""Sessions that several archives share, that are kept here for want of any, and both."""

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
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.node.roles.archive.session_restorers import RestorerSettings
from tests.support import calls
from tests.support import neighbourhood as nodes

RESTORED = placement_pb2.KV_STRATEGY_RESTORED
FULL = placement_pb2.KV_STRATEGY_FULL
SINK, WINDOW = 4, 512
MAX_TOKENS = 24
CHUNK_BYTES = CHUNK_KEYS * 256
ONE_CHUNK = f"archive={CHUNK_BYTES >> 20}MiB"
PROMPT = [(7 * index + index // 11 + index * index // 1013) % 96 for index in range(2 * CHUNK_KEYS)]
TWO_RANGES = CHUNK_KEYS + 900
THREE_RANGES = 2 * CHUNK_KEYS + 700

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def around() -> AsyncIterator[Any]:
    async with nodes.Neighbourhood() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def verifier_node(around: Any, long_checkpoint: Path) -> Any:
    settings = nodes.RoleSettings(
        kv_budget_bytes=32 << 20,
        restorers=RestorerSettings(deadline=15.0, rebuild=1.5),
    )
    return await around.start("verifier", f"verifier={long_checkpoint}", settings=settings)


@pytest.fixture
def caller(verifier_node: Any) -> Any:
    return calls.Caller(verifier_node.channel)


class Archives:
    """Archives of one test, which leave the fleet with it."""

    def __init__(self, around: Any) -> None:
        self._around = around
        self._started: list[Any] = []

    async def start(self, name: str, spec: str = "archive=64MiB", trip: float = 2e-4) -> Any:
        node = await self._around.start(name, spec)
        self._around.verifier_view.round_trips[name] = trip
        self._started.append(node)
        return node

    async def close(self) -> None:
        for node in self._started:
            self._around.directory.set_liveness(node.node_id, Liveness.DEAD)
            await node.roles.close()


@pytest_asyncio.fixture(loop_scope="module")
async def archives(around: Any, verifier_node: Any) -> AsyncIterator[Archives]:
    around.verifier_view = verifier_node.view
    made = Archives(around)
    yield made
    await made.close()


def tokens(count: int) -> list[int]:
    return [*PROMPT, *PROMPT][:count]


async def opened(caller: Any, kv_strategy: int = RESTORED, node_id: str = "") -> str:
    restorer = placement_pb2.Restorer(node_id=node_id) if node_id else None
    session = await caller.stub.CreateSession(
        runtime_pb2.CreateSessionRequest(
            model_id="long",
            kv_strategy=kv_strategy,
            sink_tokens=SINK,
            window_tokens=WINDOW,
            speculation=runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF),
            restorer=restorer,
        ),
        timeout=30,
    )
    return str(session.session_id)


async def closed(caller: Any, session_id: str) -> None:
    await caller.stub.CloseSession(runtime_pb2.CloseSessionRequest(session_id=session_id))


async def info_of(caller: Any, session_id: str) -> Any:
    request = runtime_pb2.GetSessionInfoRequest(session_id=session_id)
    return (await caller.stub.GetSessionInfo(request)).session


async def appended(caller: Any, session_id: str, token_ids: list[int]) -> None:
    for start in range(0, len(token_ids), 4000):
        await caller.append(session_id, token_ids[start : start + 4000])


async def stream(caller: Any, session_id: str, count: int = MAX_TOKENS) -> list[int]:
    """Sampled, so that small differences of the logits are seen, too."""
    found = await caller.generate(session_id, count, temperature=1.0, seed=11)
    return list(found.token_ids)


_EXPECTED: dict[int, list[int]] = {}


async def expected(caller: Any, count: int) -> list[int]:
    """The stream of full attention behind so many tokens."""
    if count not in _EXPECTED:
        session_id = await opened(caller, FULL)
        await appended(caller, session_id, tokens(count))
        _EXPECTED[count] = await stream(caller, session_id)
        assert len(set(_EXPECTED[count])) > 4
        await closed(caller, session_id)
    return _EXPECTED[count]


def where(info: Any) -> list[tuple[str, int]]:
    return [(held.archive.node_name, held.first_position) for held in info.restorer.archives]


async def test_three_archives_share_a_session_and_its_stream_is_that_of_full_attention(
    caller: Any, archives: Archives
) -> None:
    full = await expected(caller, THREE_RANGES + WINDOW)
    nearest, second = [await archives.start(name, ONE_CHUNK, trip) for name, trip in
                       (("near", 1e-4), ("middle", 2e-4))]  # fmt: skip
    await archives.start("far", "archive=64MiB", 3e-4)
    session_id = await opened(caller)
    before = (await info_of(caller, session_id)).kv_bytes
    await appended(caller, session_id, tokens(THREE_RANGES + WINDOW))
    assert await stream(caller, session_id) == full
    info = await info_of(caller, session_id)
    assert info.restorer.rebuild_count == 0
    # What the verifier's host keeps does not grow.
    assert info.kv_bytes == before
    assert info.restorer.own_bytes == 0
    assert where(info) == [("near", SINK), ("middle", CHUNK_KEYS), ("far", 2 * CHUNK_KEYS)]
    ends = [held.end_position for held in info.restorer.archives]
    assert ends[:2] == [CHUNK_KEYS, 2 * CHUNK_KEYS]
    assert ends[2] - SINK == info.restorer.evicted_token_count
    assert info.plan.archive.node_name == "near"
    told = [reason for reason in info.plan.reasons if "there was no room left before" in reason]
    assert [f"{CHUNK_KEYS:,}" in told[0], "middle" in told[0], "far" in told[1]] == [True] * 3
    assert nearest.metric("kakeya_archive_bytes") == CHUNK_BYTES
    assert second.metric("kakeya_archive_positions") == CHUNK_KEYS
    await closed(caller, session_id)


@pytest.mark.parametrize("victim", [0, 1])
async def test_a_session_that_loses_one_of_its_archives_is_made_anew_whole(
    caller: Any, archives: Archives, around: Any, victim: int
) -> None:
    full = await expected(caller, TWO_RANGES + WINDOW)
    shared = [await archives.start(f"part{victim}{index}", ONE_CHUNK, 1e-4 * (index + 1))
              for index in range(2)]  # fmt: skip
    spare = await archives.start(f"spare{victim}", "archive=64MiB", 1e-2)
    session_id = await opened(caller)
    await appended(caller, session_id, tokens(TWO_RANGES + WINDOW))
    assert [name for name, _ in where(await info_of(caller, session_id))] == [
        node.node_id for node in shared
    ]
    around.directory.set_liveness(shared[victim].node_id, Liveness.DEAD)
    await shared[victim].roles.close()
    assert await stream(caller, session_id) == full
    info = await info_of(caller, session_id)
    assert info.restorer.rebuild_count == 1
    assert where(info) == [(spare.node_id, SINK)]
    # Nothing is left behind in the one that lives.
    assert shared[1 - victim].metric("kakeya_archives_open") == 0
    await closed(caller, session_id)


async def test_a_history_that_fits_no_archive_is_made_anew_on_several(
    caller: Any, archives: Archives, around: Any
) -> None:
    full = await expected(caller, TWO_RANGES + WINDOW)
    whole = await archives.start("whole", "archive=64MiB", 1e-4)
    session_id = await opened(caller)
    await appended(caller, session_id, tokens(TWO_RANGES + WINDOW))
    for name in ("half", "other"):
        await archives.start(name, ONE_CHUNK, 1e-3)
    around.directory.set_liveness("whole", Liveness.DEAD)
    await whole.roles.close()
    assert await stream(caller, session_id) == full
    assert where(await info_of(caller, session_id)) == [("half", SINK), ("other", CHUNK_KEYS)]
    await closed(caller, session_id)


async def test_without_an_archive_it_is_kept_here_as_far_as_memory_goes(
    caller: Any, archives: Archives, around: Any, verifier_node: Any
) -> None:
    count = 4000
    full = await expected(caller, count)
    longer = [*tokens(count), *full, *tokens(CHUNK_KEYS - 2000)]
    only = await archives.start("only", "archive=64MiB")
    session_id = await opened(caller)
    before = await info_of(caller, session_id)
    await appended(caller, session_id, tokens(count))
    held = verifier_node.roles.load_numbers().kv_bytes
    around.directory.set_liveness("only", Liveness.DEAD)
    await only.roles.close()
    assert await stream(caller, session_id) == full
    info = await info_of(caller, session_id)
    assert not info.restorer.lost
    assert info.restorer.rebuild_count == 1
    assert [(each.HasField("archive"), each.first_position) for each in info.restorer.archives] == [
        (False, SINK)
    ]
    assert not info.plan.HasField("archive")
    assert any("kept here" in reason and "grows" in reason for reason in info.plan.reasons)
    # It is counted, in the session's bytes and the node's.
    assert info.restorer.own_bytes == info.restorer.evicted_bytes >= count * 256
    assert info.kv_bytes == before.kv_bytes + info.restorer.own_bytes
    assert verifier_node.roles.load_numbers().kv_bytes == held + info.restorer.own_bytes
    # A fork has its own part of it.
    forked = await caller.stub.ForkSession(
        runtime_pb2.ForkSessionRequest(session_id=session_id, history_length=count)
    )
    assert await stream(caller, forked.session_id) == full
    await closed(caller, forked.session_id)
    # From the next range on an archive is used again.
    await archives.start("again", "archive=64MiB")
    await appended(caller, session_id, [*tokens(CHUNK_KEYS - 2000), *tokens(2500)])
    info = await info_of(caller, session_id)
    assert where(info) == [("", SINK), ("again", CHUNK_KEYS)]
    assert info.restorer.own_bytes == CHUNK_BYTES
    assert "again" in " ".join(info.plan.reasons)
    late = await stream(caller, session_id)
    other = await opened(caller)
    await appended(caller, other, [*longer, *tokens(2500)])
    assert await stream(caller, other) == late
    for each in (other, session_id):
        await closed(caller, each)
    assert verifier_node.roles.load_numbers().kv_bytes == 0


async def test_it_is_not_kept_here_where_it_does_not_fit_or_was_not_to_be(
    caller: Any, archives: Archives, around: Any, verifier_node: Any
) -> None:
    for name, node_id in (("wide", ""), ("named", "named")):
        node = await archives.start(name, "archive=64MiB")
        session_id = await opened(caller, node_id=node_id)
        await appended(caller, session_id, tokens(2000))
        served = verifier_node.roles._verifiers["long"]
        budget = served.verifier.pool.budget_bytes
        if not node_id:
            served.verifier.pool.budget_bytes = served.verifier.pool.used_bytes + 2048 * 256 - 1
        around.directory.set_liveness(name, Liveness.DEAD)
        await node.roles.close()
        try:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stream(caller, session_id)
            assert calls.refused(caught.value).reason == "RESTORER_LOST"
            assert (await info_of(caller, session_id)).restorer.lost
        finally:
            served.verifier.pool.budget_bytes = budget
        await closed(caller, session_id)
    assert verifier_node.roles.load_numbers().kv_bytes == 0


async def test_another_arithmetic_is_not_gone_on_with(
    caller: Any, archives: Archives, around: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither here, nor on an archive that computes otherwise."""
    node = await archives.start("own", "archive=64MiB")
    session_id = await opened(caller)
    await appended(caller, session_id, tokens(2000))
    around.directory.set_liveness("own", Liveness.DEAD)
    await node.roles.close()
    from kakeya_fleet.engine.backends.torch_backend.archive_stores import TorchArchiveStores  # noqa: PLC0415

    monkeypatch.setattr(TorchArchiveStores, "arithmetic", "of another machine")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream(caller, session_id)
    assert calls.refused(caught.value).reason == "RESTORER_LOST"
    await closed(caller, session_id)


async def test_sessions_over_shared_archives_do_not_meet(caller: Any, archives: Archives) -> None:
    """Appended to and decoded in turns, across a border, each as if it were alone."""
    await archives.start("first", f"archive={2 * CHUNK_BYTES >> 20}MiB", 1e-4)
    await archives.start("next", "archive=64MiB", 2e-4)
    count = CHUNK_KEYS + WINDOW - 60
    prompts = [tokens(count), [(5 * token + 3) % 96 for token in tokens(count)]]

    names: list[list[str]] = []

    async def run(prompt: list[int]) -> list[int]:
        session_id = await opened(caller)
        for start in range(0, count, 997):
            await caller.append(session_id, prompt[start : start + 997])
        found = []
        for piece in range(3):
            found += await stream(caller, session_id, 16)
            await caller.append(session_id, prompt[piece * 20 : piece * 20 + 20])
        found += await stream(caller, session_id)
        names.append([name for name, _ in where(await info_of(caller, session_id))])
        await closed(caller, session_id)
        return found

    alone = [await run(prompt) for prompt in prompts]
    together = await asyncio.gather(*(run(prompt) for prompt in prompts))
    assert list(together) == alone
    assert alone[0] != alone[1]
    # Alone there is room in the first for both chunks.
    assert names == [["first"]] * 2 + [["first", "next"]] * 2
