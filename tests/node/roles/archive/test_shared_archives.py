"""Sessions that several archives share, that are kept here for want of any, and both.

Ranges begin at multiples of 1,024 positions here, so that short histories cross some;
`tests/scenario/test_shared_archives.py` crosses one of 8,192.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.engine.backends.torch_backend import archive_stores
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.placement import archive_reasons, archive_shares
from kakeya_fleet.node.config import role_spec
from kakeya_fleet.node.roles.archive import archive_ways, session_restorers
from kakeya_fleet.node.roles.archive.answer_audit import Auditing
from kakeya_fleet.node.roles.archive.shared_store import Sharing
from kakeya_fleet.node.roles.settings import RestorerSettings, RoleSettings
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.checkpoint import POSITION_BYTES

RESTORED = placement_pb2.KV_STRATEGY_RESTORED
FULL = placement_pb2.KV_STRATEGY_FULL
SINK, WINDOW = 4, 64
MAX_TOKENS = 24
CHUNK = 1024
CHUNK_BYTES = CHUNK * POSITION_BYTES
ONE_CHUNK = f"archive={CHUNK_BYTES}"
PROMPT = [(7 * index + index // 11 + index * index // 1013) % 96 for index in range(3 * CHUNK)]
TWO_RANGES = CHUNK + 200
THREE_RANGES = 2 * CHUNK + 200

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", autouse=True)
def _short_chunks() -> Iterator[None]:
    """Stores add up in chunks of `CHUNK`, the planner counts with them, and ranges begin there."""
    store, sharing = partial(TorchEvictedStore, chunk_keys=CHUNK), partial(Sharing, chunk=CHUNK)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(archive_stores, "TorchEvictedStore", store)
        patched.setattr(session_restorers, "Sharing", sharing)
        patched.setattr(session_restorers, "CHUNK_KEYS", CHUNK)
        patched.setattr(archive_ways, "Auditing", partial(Auditing, chunk=CHUNK))
        patched.setattr(role_spec, "LEAST_ARCHIVE_BYTES", CHUNK_BYTES)
        for module in (archive_shares, archive_reasons):
            patched.setattr(module, "BOUNDARY_POSITIONS", CHUNK)
        yield


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def around() -> AsyncIterator[nodes.Neighbourhood]:
    async with nodes.Neighbourhood() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def verifier_node(around: nodes.Neighbourhood, checkpoint: Path) -> nodes.Node:
    settings = RoleSettings(
        kv_budget_bytes=32 << 20,
        restorers=RestorerSettings(deadline=15.0, rebuild=2.0),
    )
    return await around.start("verifier", f"verifier={checkpoint}", settings=settings)


@pytest.fixture
def caller(verifier_node: nodes.Node) -> calls.Caller:
    return calls.Caller(verifier_node.channel)


class Archives:
    """Archives of one test, which leave the fleet with it."""

    def __init__(self, around: nodes.Neighbourhood, seen: nodes.View) -> None:
        self._around = around
        self._seen = seen
        self._started: list[nodes.Node] = []

    async def start(self, name: str, spec: str = "archive=64MiB", trip: float = 2e-4) -> nodes.Node:
        node = await self._around.start(name, spec)
        self._seen.round_trips[name] = trip
        self._started.append(node)
        return node

    async def close(self) -> None:
        for node in self._started:
            self._around.directory.set_liveness(node.node_id, Liveness.DEAD)
            await node.roles.close()


@pytest_asyncio.fixture(loop_scope="module")
async def archives(
    around: nodes.Neighbourhood, verifier_node: nodes.Node
) -> AsyncIterator[Archives]:
    made = Archives(around, verifier_node.view)
    yield made
    await made.close()


def tokens(count: int) -> list[int]:
    return PROMPT[:count]


async def opened(caller: calls.Caller, kv_strategy: Any = RESTORED, node_id: str = "") -> str:
    restorer = placement_pb2.Restorer(node_id=node_id) if node_id else None
    session = await caller.stub.CreateSession(
        runtime_pb2.CreateSessionRequest(
            model_id="random",
            kv_strategy=kv_strategy,
            sink_tokens=SINK,
            window_tokens=WINDOW,
            speculation=runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF),
            restorer=restorer,
        ),
        timeout=30,
    )
    return str(session.session_id)


async def closed(caller: calls.Caller, session_id: str) -> None:
    await caller.stub.CloseSession(runtime_pb2.CloseSessionRequest(session_id=session_id))


async def stream(caller: calls.Caller, session_id: str, count: int = MAX_TOKENS) -> list[int]:
    """Sampled, so that small differences of the logits are seen, too."""
    found = await caller.generate(session_id, count, temperature=1.0, seed=11)
    return list(found.token_ids)


_EXPECTED: dict[int, list[int]] = {}


async def expected(caller: calls.Caller, count: int) -> list[int]:
    """The stream of full attention behind so many tokens."""
    if count not in _EXPECTED:
        session_id = await opened(caller, FULL)
        await caller.append(session_id, tokens(count))
        _EXPECTED[count] = await stream(caller, session_id)
        assert len(set(_EXPECTED[count])) > 4
        await closed(caller, session_id)
    return _EXPECTED[count]


def where(info: Any) -> list[tuple[str, int]]:
    return [(held.archive.node_name, held.first_position) for held in info.restorer.archives]


async def test_three_archives_share_a_session_and_its_stream_is_that_of_full_attention(
    caller: calls.Caller, archives: Archives
) -> None:
    full = await expected(caller, THREE_RANGES + WINDOW)
    nearest, second = [await archives.start(name, ONE_CHUNK, trip) for name, trip in
                       (("near", 1e-4), ("middle", 2e-4))]  # fmt: skip
    await archives.start("far", "archive=64MiB", 3e-4)
    session_id = await opened(caller)
    before = (await caller.info(session_id)).kv_bytes
    await caller.append(session_id, tokens(THREE_RANGES + WINDOW))
    assert await stream(caller, session_id) == full
    info = await caller.info(session_id)
    assert info.restorer.rebuild_count == 0
    # What the verifier's host keeps does not grow.
    assert info.kv_bytes == before
    assert info.restorer.own_bytes == 0
    assert where(info) == [("near", SINK), ("middle", CHUNK), ("far", 2 * CHUNK)]
    ends = [held.end_position for held in info.restorer.archives]
    assert ends[:2] == [CHUNK, 2 * CHUNK]
    assert ends[2] - SINK == info.restorer.evicted_token_count
    assert info.plan.archive.node_name == "near"
    told = [reason for reason in info.plan.reasons if "there was no room left before" in reason]
    assert [f"{CHUNK:,}" in told[0], "middle" in told[0], "far" in told[1]] == [True] * 3
    assert nearest.metric("kakeya_archive_bytes") == CHUNK_BYTES
    assert second.metric("kakeya_archive_positions") == CHUNK
    await closed(caller, session_id)


async def test_a_session_that_loses_one_of_its_archives_is_made_anew_whole(
    caller: calls.Caller, archives: Archives, around: nodes.Neighbourhood
) -> None:
    """The first of two, which takes no deposit any more."""
    full = await expected(caller, TWO_RANGES + WINDOW)
    victim, other = [await archives.start(f"part{index}", ONE_CHUNK, 1e-4 * (index + 1))
                     for index in range(2)]  # fmt: skip
    spare = await archives.start("spare", "archive=64MiB", 1e-2)
    session_id = await opened(caller)
    await caller.append(session_id, tokens(TWO_RANGES + WINDOW))
    assert [name for name, _ in where(await caller.info(session_id))] == ["part0", "part1"]
    around.directory.set_liveness(victim.node_id, Liveness.DEAD)
    await victim.roles.close()
    assert await stream(caller, session_id) == full
    info = await caller.info(session_id)
    assert info.restorer.rebuild_count == 1
    assert where(info) == [(spare.node_id, SINK)]
    # Nothing is left behind in the one that lives.
    assert other.metric("kakeya_archives_open") == 0
    await closed(caller, session_id)


async def test_a_history_that_fits_no_archive_is_made_anew_on_several(
    caller: calls.Caller, archives: Archives, around: nodes.Neighbourhood
) -> None:
    full = await expected(caller, TWO_RANGES + WINDOW)
    whole = await archives.start("whole", "archive=64MiB", 1e-4)
    session_id = await opened(caller)
    await caller.append(session_id, tokens(TWO_RANGES + WINDOW))
    for name in ("half", "other"):
        await archives.start(name, ONE_CHUNK, 1e-3)
    around.directory.set_liveness("whole", Liveness.DEAD)
    await whole.roles.close()
    assert await stream(caller, session_id) == full
    assert where(await caller.info(session_id)) == [("half", SINK), ("other", CHUNK)]
    await closed(caller, session_id)


async def test_without_an_archive_it_is_kept_here_as_far_as_memory_goes(
    caller: calls.Caller, archives: Archives, around: nodes.Neighbourhood, verifier_node: nodes.Node
) -> None:
    count = 500
    full = await expected(caller, count)
    longer = [*tokens(count), *full, *tokens(CHUNK - 400)]
    only = await archives.start("only", "archive=64MiB")
    session_id = await opened(caller)
    before = await caller.info(session_id)
    await caller.append(session_id, tokens(count))
    held = verifier_node.roles.load_numbers().kv_bytes
    around.directory.set_liveness("only", Liveness.DEAD)
    await only.roles.close()
    assert await stream(caller, session_id) == full
    info = await caller.info(session_id)
    assert not info.restorer.lost
    assert info.restorer.rebuild_count == 1
    assert [(each.HasField("archive"), each.first_position) for each in info.restorer.archives] == [
        (False, SINK)
    ]
    assert not info.plan.HasField("archive")
    assert any("kept here" in reason and "grows" in reason for reason in info.plan.reasons)
    # It is counted, in the session's bytes and the node's.
    assert info.restorer.own_bytes == info.restorer.evicted_bytes >= count * POSITION_BYTES
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
    await caller.append(session_id, [*tokens(CHUNK - 400), *tokens(600)])
    info = await caller.info(session_id)
    assert where(info) == [("", SINK), ("again", CHUNK)]
    assert info.restorer.own_bytes == CHUNK_BYTES
    assert "again" in " ".join(info.plan.reasons)
    late = await stream(caller, session_id)
    other = await opened(caller)
    await caller.append(other, [*longer, *tokens(600)])
    assert await stream(caller, other) == late
    for each in (other, session_id):
        await closed(caller, each)
    assert verifier_node.roles.load_numbers().kv_bytes == 0


async def test_it_is_not_kept_here_where_it_does_not_fit_or_was_not_to_be(
    caller: calls.Caller,
    archives: Archives,
    around: nodes.Neighbourhood,
    verifier_node: nodes.Node,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor where the arithmetic is another than that of the archive that was lost."""
    pool = verifier_node.roles.verifiers["random"].verifier.pool
    for name in ("wide", "named", "foreign"):
        node = await archives.start(name, "archive=64MiB")
        session_id = await opened(caller, node_id=name if name == "named" else "")
        await caller.append(session_id, tokens(500))
        around.directory.set_liveness(name, Liveness.DEAD)
        await node.roles.close()
        with monkeypatch.context() as patched, pytest.raises(grpc.aio.AioRpcError) as caught:
            if name == "wide":
                patched.setattr(pool, "budget_bytes", pool.used_bytes + 512 * POSITION_BYTES - 1)
            if name == "foreign":
                patched.setattr(
                    archive_stores.TorchArchiveStores, "arithmetic", "of another machine"
                )
            await stream(caller, session_id)
        assert calls.refused(caught.value).reason == "RESTORER_LOST", name
        assert (await caller.info(session_id)).restorer.lost
        await closed(caller, session_id)
    assert verifier_node.roles.load_numbers().kv_bytes == 0
