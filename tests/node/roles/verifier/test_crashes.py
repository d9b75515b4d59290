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
from tests.support import calls
from tests.support import neighbourhood as nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 11 % 96 for index in range(30)]
OTHER = [index * 7 % 96 for index in range(40)]
COUNT = 1500


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
) -> None:
    expected = (await client.generate(await opened(client, PROMPT), COUNT)).token_ids
    expected_other = (await client.generate(await opened(client, OTHER), 20)).token_ids
    neighbour, session = await opened(client, PROMPT), await opened(client, OTHER)
    before = verifier.metric("kakeya_rpc_errors_total", reason=reason)

    model = verifier.roles.verifiers["random"].verifier
    cache = verifier.roles.sessions.get(session).session._cache._cache
    assert cache is not None
    failing = FailingForwards(model, cache, fault)
    monkeypatch.setattr(model, "forward_batch", failing)
    streaming = asyncio.create_task(client.generate(neighbour, COUNT))
    refused = 0
    while failing.shared_count < 3:
        assert not streaming.done(), "no forward was shared"
        refusal = await client.refusal("Generate", generation(session))
        refused += 1
        assert (refusal.code, refusal.reason) == (code, reason)
        assert "secret" not in refusal.text
    assert (await streaming).token_ids == expected
    assert failing.alone_count >= failing.shared_count
    assert verifier.metric("kakeya_rpc_errors_total", reason=reason) == before + refused

    monkeypatch.undo()
    assert (await client.generate(session, 20)).token_ids == expected_other
