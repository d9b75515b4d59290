"""Sessions that fail once their archive was opened: it is given back, not left to its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest

from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.node.roles.archive.session_restorer import SessionRestorer
from kakeya_fleet.node.roles.archive.session_restorers import Restorers
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUEST = runtime_pb2.CreateSessionRequest(
    model_id="random",
    kv_strategy=placement_pb2.KV_STRATEGY_RESTORED,
    window_tokens=32,
    speculation=runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF),
)


def after_opening(monkeypatch: pytest.MonkeyPatch, then: Callable[[], Awaitable[object]]) -> None:
    """Has `then` done between the archive's opening and the session's making."""
    real = Restorers.open

    async def opened(restorers: Restorers, restorer: SessionRestorer) -> EvictedStore | None:
        store = await real(restorers, restorer)
        await then()
        return store

    monkeypatch.setattr(Restorers, "open", opened)


async def test_a_verifier_that_is_removed_meanwhile_leaves_no_archive(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes.Neighbourhood() as around:
        node = await around.start("verifier", f"verifier={checkpoint}")
        archive = await around.start("archive", "archive=64MiB")
        after_opening(monkeypatch, lambda: node.roles.remove(Role.VERIFIER, "random", 0.0))
        refusal = await calls.Caller(node.channel).refusal("CreateSession", REQUEST)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert len(node.roles.sessions) == 0
        await calls.until(lambda: archive.metric("kakeya_archives_open") == 0)


async def test_a_caller_that_left_and_then_the_verifier_leave_no_archive(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The making goes on without its caller; it has an end all the same."""
    async with nodes.Neighbourhood() as around:
        node = await around.start("verifier", f"verifier={checkpoint}")
        archive = await around.start("archive", "archive=64MiB")
        (served,) = node.roles.verifiers.values()
        began, goes_on = asyncio.Event(), asyncio.Event()
        real = served.worker.run

        async def waiting(step: Callable[[], object]) -> object:
            began.set()
            await goes_on.wait()
            return await real(step)

        monkeypatch.setattr(served.worker, "run", waiting)
        call = calls.Caller(node.channel).stub.CreateSession(REQUEST, timeout=PATIENCE_SECONDS)
        await began.wait()
        assert archive.metric("kakeya_archives_open") == 1
        call.cancel()
        await node.roles.remove(Role.VERIFIER, "random", 0.0)
        goes_on.set()
        await calls.until(lambda: archive.metric("kakeya_archives_open") == 0)
        assert len(node.roles.sessions) == 0
