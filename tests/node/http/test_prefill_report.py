"""What an answer says of its prompt's prefill is what the node said of it, told at the opening."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kakeya import AsyncClient
from kakeya.text import TextCodec
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.caller import NOBODY
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.http.answering import End, Happening, Work, answer
from kakeya_fleet.node.http.callers import CallersClients, HttpCaller
from kakeya_fleet.node.http.completion_request import read_completion
from kakeya_fleet.node.http.kept_sessions import KeptSessions
from kakeya_fleet.node.http.prompt_reading import PromptReading
from kakeya_fleet.node.http.usage import fleet_report
from kakeya_fleet.node.metrics import NodeMetrics
from tests.support.scripted_node import ScriptedNode

ROOT = Path(__file__).parents[3]


@pytest.fixture
async def node() -> AsyncIterator[ScriptedNode]:
    """A scripted node, as the SDK's tests have them."""
    made = ScriptedNode()
    await made.start()
    yield made
    await made.stop()


async def test_the_prompt_is_computed_at_the_opening_once_for_all_choices(
    node: ScriptedNode,
) -> None:
    codec = TextCodec.from_folder(ROOT / "engine" / "shipped" / "tiny")
    node.model.tokenizer_digest = codec.digest
    node.opened.prefill_seconds = 4.0
    node.done.timings.prefill_seconds = 0.5
    options = read_completion({"model": "tiny", "prompt": [5, 6], "n": 2}).options
    ends: list[End] = []

    async def put(happening: Happening) -> None:
        if isinstance(happening, End):
            ends.append(happening)

    async with AsyncClient(node.address) as client:
        clients = CallersClients(client, lambda _key: client)
        kept = KeptSessions(clients, Allowances(Limits(), NodeMetrics()))
        work = Work(options, ((5, 6),), 3, codec)
        await answer(client, work, kept.of(HttpCaller(NOBODY)), PromptReading([2]), put)
    report: Any = fleet_report(ends)
    reported = [each["prefill_seconds"] for each in report["choices"]]
    assert reported == [4.5, 4.5]
    (opening,) = node.requests["CreateSession"]
    assert list(opening.initial_token_ids) == [5, 6]
    assert not node.requests["AppendTokens"]
