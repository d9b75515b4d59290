"""A proposer that is named as soon as its node is met: its way is measured a moment later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kakeya_fleet.node.roles.verifier import pairing
from tests.support import calls
from tests.support.neighbourhood import Neighbourhood, Node

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Met:
    """A verifier that has not measured the way to a proposer, and how often it looked."""

    client: calls.Caller
    ways: dict[str, Any]
    looked: asyncio.Event

    async def open(self) -> str:
        return await self.client.open(mode=calls.FIXED, proposer="ngram", proposer_node="far")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def node(neighbourhood: Neighbourhood, checkpoint: Path) -> AsyncIterator[Node]:
    await neighbourhood.start("far", "proposer=ngram")
    yield await neighbourhood.start("one", f"verifier={checkpoint}")


@pytest.fixture
def met(node: Node, monkeypatch: pytest.MonkeyPatch) -> Met:
    ways: dict[str, Any] = node.view.round_trips
    ways["far"] = None
    looked = asyncio.Event()
    planner = node.roles.verifier._lifecycle._context.planner
    ask = planner.is_measuring

    def is_measuring(request: Any) -> bool:
        looked.set()
        return ask(request)

    monkeypatch.setattr(planner, "is_measuring", is_measuring)
    return Met(calls.Caller(node.channel), ways, looked)


async def test_a_session_that_names_it_waits_for_its_way(
    met: Met, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing, "MEETING_SECONDS", 60.0)
    opening = asyncio.create_task(met.open())
    await met.looked.wait()
    assert not opening.done()
    met.ways["far"] = 0.001
    assert await met.client.close(await opening) == 0


async def test_it_does_not_wait_for_ever(met: Met, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "MEETING_SECONDS", 0.0)
    assert (await calls.refused_by(met.open())).reason == "NO_PLACEMENT"


async def test_what_is_refused_for_another_reason_is_at_once(
    met: Met, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing, "MEETING_SECONDS", 3600.0)
    met.ways["far"] = 0.001
    unknown = met.client.open(mode=calls.FIXED, proposer="liar", proposer_node="far")
    assert (await calls.refused_by(unknown)).reason == "NO_PLACEMENT"
