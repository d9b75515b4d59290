"""What crashes in a model's thread: it ends what it was about, by name, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from kakeya.v1 import runtime_pb2
from kakeya_fleet.engine.contracts.verifier import Feed, Output, Verifier
from kakeya_fleet.engine.sessions.gathering import Gathering
from kakeya_fleet.engine.sessions.turn_queue import TurnQueue
from kakeya_fleet.node.watch.event_log import EventKind
from tests.support import calls
from tests.support import neighbourhood as nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 11 % 96 for index in range(30)]
OTHER = [index * 7 % 96 for index in range(40)]
COUNT = 400
SEVERAL = 120
"""Of those of a session with which a fault is met."""


@dataclass
class FailingForwards:
    """Forwards of a verifier, of which those with a feed of `cache` raise `fault`."""

    verifier: Verifier
    cache: object
    fault: BaseException
    alone_count: int = 0
    shared_count: int = 0
    _forward: Any = field(init=False)

    def __post_init__(self) -> None:
        self._forward = self.verifier.forward_batch

    def __call__(self, feeds: Sequence[Feed]) -> list[Output]:
        if any(feed.cache is self.cache for feed in feeds):
            self.alone_count += len(feeds) == 1
            self.shared_count += len(feeds) > 1
            raise self.fault
        outputs: list[Output] = self._forward(feeds)
        return outputs


def generation(session: str) -> runtime_pb2.GenerateRequest:
    return runtime_pb2.GenerateRequest(session_id=session, max_tokens=20)


async def opened(client: calls.Caller, prompt: Sequence[int]) -> str:
    session = await client.open()
    await client.append(session, prompt)
    return session


@pytest.fixture(scope="module")
def known_answers() -> dict[tuple[int, ...], list[int]]:
    """`COUNT` tokens behind a prompt, once they were asked for without a fault."""
    return {}


async def whole_answers(
    client: calls.Caller, known_answers: dict[tuple[int, ...], list[int]]
) -> list[list[int]]:
    """What follows `PROMPT` and `OTHER` where nothing fails."""
    for prompt in (PROMPT, OTHER):
        if tuple(prompt) not in known_answers:
            answer = await client.generate(await opened(client, prompt), COUNT)
            known_answers[tuple(prompt)] = answer.token_ids
    return [known_answers[tuple(prompt)] for prompt in (PROMPT, OTHER)]


@pytest.mark.parametrize(
    ("fault", "code", "reason"),
    [
        (RuntimeError("secret detail"), grpc.StatusCode.INTERNAL, "INTERNAL_ERROR"),
        (MemoryError(), grpc.StatusCode.RESOURCE_EXHAUSTED, "OUT_OF_KV_MEMORY"),
        # What a library may do that was written for programs of its own.
        (SystemExit(3), grpc.StatusCode.INTERNAL, "INTERNAL_ERROR"),
        (StopIteration("secret detail"), grpc.StatusCode.INTERNAL, "INTERNAL_ERROR"),
        (asyncio.CancelledError(), grpc.StatusCode.INTERNAL, "INTERNAL_ERROR"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_a_forward_that_raises_costs_its_own_session_alone(
    client: calls.Caller,
    verifier: nodes.Node,
    monkeypatch: pytest.MonkeyPatch,
    fault: BaseException,
    code: grpc.StatusCode,
    reason: str,
    known_answers: dict[tuple[int, ...], list[int]],
) -> None:
    answers = await whole_answers(client, known_answers)
    neighbour, session = await opened(client, PROMPT), await opened(client, OTHER)
    before = verifier.metric("kakeya_rpc_errors_total", reason=reason)

    model = verifier.roles.verifiers["random"].verifier
    cache = verifier.roles.sessions.get(session).session._cache._cache
    assert cache is not None
    failing = FailingForwards(model, cache, fault)
    monkeypatch.setattr(model, "forward_batch", failing)
    streaming = asyncio.create_task(client.generate(neighbour, COUNT))
    refused = 0
    while failing.shared_count < 2:
        assert not streaming.done(), "no forward was shared"
        refusal = await client.refusal("Generate", generation(session))
        refused += 1
        assert (refusal.code, refusal.reason) == (code, reason)
        assert "secret" not in refusal.text
    assert (await streaming).token_ids == answers[0]
    assert failing.alone_count >= failing.shared_count
    assert verifier.metric("kakeya_rpc_errors_total", reason=reason) == before + refused

    monkeypatch.undo()
    assert (await client.generate(session, 20)).token_ids == answers[1][:20]


async def streamed(client: calls.Caller, session: str, count: int) -> tuple[list[int], str]:
    """The tokens of a generation, and the reason with which it ended before its end."""
    request = runtime_pb2.GenerateRequest(session_id=session, max_tokens=count)
    tokens: list[int] = []
    try:
        async for message in client.stub.Generate(request, timeout=60):
            tokens += message.tokens.token_ids
    except grpc.aio.AioRpcError as error:
        refused = calls.refused(error)
        assert refused.code is grpc.StatusCode.UNAVAILABLE
        assert refused.retry_seconds
        return tokens, refused.reason
    return tokens, ""


def fault_events(node: nodes.Node) -> list[str]:
    """What it says of faults besides calls, oldest first."""
    events = node.activity.events.latest
    return [event.message for event in events if event.kind is EventKind.BACKGROUND_FAULT]


@pytest.mark.parametrize(
    ("room", "method"),
    [
        (TurnQueue, "add"),
        (TurnQueue, "next_batch"),
        (Gathering, "came"),
        (Gathering, "linger_seconds"),
        (Gathering, "served"),
    ],
)
async def test_a_fault_between_steps_ends_what_waits_and_the_thread_goes_on(
    client: calls.Caller,
    verifier: nodes.Node,
    monkeypatch: pytest.MonkeyPatch,
    room: type,
    method: str,
    known_answers: dict[tuple[int, ...], list[int]],
) -> None:
    answers = [each[:SEVERAL] for each in await whole_answers(client, known_answers)]
    prompts = (PROMPT, OTHER)
    sessions = [await opened(client, prompt) for prompt in prompts]
    thread = f"thread {verifier.roles.verifiers['random'].worker._name}"
    metric = {"task": thread, "error": "ZeroDivisionError"}
    faults = "kakeya_background_faults_total"
    before, told = verifier.metric(faults, **metric), len(fault_events(verifier))

    working, uses = getattr(room, method), 0

    def breaks_once(*arguments: Any) -> object:
        nonlocal uses
        uses += 1
        # Once both sessions' turns are under way.
        if uses == 40:
            raise ZeroDivisionError("a fault of the queue")
        return working(*arguments)

    monkeypatch.setattr(room, method, breaks_once)
    async with asyncio.timeout(90):
        ends = await asyncio.gather(*(streamed(client, each, SEVERAL) for each in sessions))
        for session, (tokens, reason), whole in zip(sessions, ends, answers, strict=True):
            assert reason == ("WORKER_FAULT" if len(tokens) < SEVERAL else "")
            # What was committed last may not have been sent any more.
            length = (await client.info(session)).history_length
            kept = length - len(prompts[sessions.index(session)])
            assert tokens == whole[: len(tokens)]
            if kept < SEVERAL:
                assert (await client.generate(session, SEVERAL - kept)).token_ids == whole[kept:]
    assert uses > 40, "it was not used again"
    assert verifier.metric(faults, **metric) == before + 1
    (message,) = fault_events(verifier)[told:]
    assert message == (
        f"{thread} failed: ZeroDivisionError: a fault of the queue."
        " What waited for it ended with WORKER_FAULT; it goes on."
    )
