"""How a prompt comes to its node, and what an answer says of its prefill: what the node said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from kakeya import AsyncClient, OutOfKvMemory
from kakeya.text import TextCodec
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.caller import NOBODY
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.http.answering import End, Happening, Work, answer
from kakeya_fleet.node.http.callers import CallersClients, HttpCaller
from kakeya_fleet.node.http.completion_request import read_completion
from kakeya_fleet.node.http.kept_sessions import KeptSessions
from kakeya_fleet.node.http.prompt_reading import LONG_PROMPT_TOKENS, PromptReading
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


async def answered(node: ScriptedNode, body: Mapping[str, object]) -> list[End]:
    """The ends of a request's answers."""
    codec = TextCodec.from_folder(ROOT / "engine" / "shipped" / "tiny")
    node.model.tokenizer_digest = codec.digest
    request = read_completion(body)
    (prompt,) = request.prompts
    assert isinstance(prompt, tuple)
    ends: list[End] = []

    async def put(happening: Happening) -> None:
        if isinstance(happening, End):
            ends.append(happening)

    async with AsyncClient(node.address) as client:
        clients = CallersClients(client, lambda _key: client)
        kept = KeptSessions(clients, Allowances(Limits(), NodeMetrics()))
        work = Work(request.options, (prompt,), 3, codec)
        reading = PromptReading([len(prompt)])
        await answer(client, work, kept.of(HttpCaller(NOBODY)), reading, put)
    return ends


async def test_the_prompt_is_computed_at_the_opening_once_for_all_choices(
    node: ScriptedNode,
) -> None:
    node.opened.prefill_seconds = 4.0
    node.done.timings.prefill_seconds = 0.5
    ends = await answered(node, {"model": "tiny", "prompt": [5, 6], "n": 2})
    report: Any = fleet_report(ends)
    reported = [each["prefill_seconds"] for each in report["choices"]]
    assert reported == [4.5, 4.5]
    (opening,) = node.requests["CreateSession"]
    assert list(opening.initial_token_ids) == [5, 6]
    assert not node.requests["AppendTokens"]


LONG = [5] * LONG_PROMPT_TOKENS


async def test_a_long_prompt_is_appended_where_somebody_may_look_at_it(node: ScriptedNode) -> None:
    node.appended.prefill_seconds = 4.0
    (end,) = await answered(node, {"model": "tiny", "prompt": LONG, "stream": True})
    assert end.prefill_seconds == 4.0
    (opening,) = node.requests["CreateSession"]
    assert not opening.initial_token_ids
    # In one call, so that it is refused whole or not at all.
    (appending,) = node.requests["AppendTokens"]
    assert list(appending.token_ids) == LONG
    assert appending.room_tokens == 3
    await answered(node, {"model": "tiny", "prompt": LONG})
    assert list(node.requests["CreateSession"][-1].initial_token_ids) == LONG


async def test_a_long_prompt_that_is_refused_leaves_no_session(node: ScriptedNode) -> None:
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    node.refuse("AppendTokens", code, reason="OUT_OF_KV_MEMORY")
    with pytest.raises(OutOfKvMemory):
        await answered(node, {"model": "tiny", "prompt": LONG, "stream": True})
    assert not node.sessions
