"""A node without room says so before another node keeps anything for the session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.node.admission.limits import Limits, SessionLimits
from kakeya_fleet.node.roles.archive.session_restorers import Restorers
from tests.support import calls
from tests.support import neighbourhood as nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESTORED = runtime_pb2.CreateSessionRequest(
    model_id="random", kv_strategy=placement_pb2.KV_STRATEGY_RESTORED, window_tokens=64
)


@pytest.fixture
def archives_opened(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was asked of archives."""
    opened: list[object] = []
    honest = Restorers.open

    async def open_archive(self: Restorers, restorer: Any) -> Any:
        opened.append(restorer)
        return await honest(self, restorer)

    monkeypatch.setattr(Restorers, "open", open_archive)
    return opened


@pytest.mark.parametrize(
    ("reason", "budget_bytes", "places"),
    [("OUT_OF_KV_MEMORY", 1024, 100), ("TOO_MANY_SESSIONS", 64 << 20, 1)],
)
async def test_no_archive_is_opened_for_a_session_that_finds_no_room(
    neighbourhood: nodes.Neighbourhood,
    checkpoint: Path,
    archives_opened: list[object],
    reason: str,
    budget_bytes: int,
    places: int,
) -> None:
    await neighbourhood.start("archive", "archive=64MiB")
    full = await neighbourhood.start(
        f"full-{places}",
        f"verifier={checkpoint}",
        settings=replace(nodes.SETTINGS, kv_budget_bytes=budget_bytes),
        limits=Limits(sessions=SessionLimits(at_once=places)),
    )
    client = calls.Caller(full.channel)
    if places == 1:
        # One that was used just now makes no way.
        await client.append(await client.open(), [1, 2, 3])
    refusal = await client.refusal("CreateSession", RESTORED)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
    assert not archives_opened
