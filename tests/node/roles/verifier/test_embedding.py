"""Vectors of texts over the wire: the same in any company, refused by name, leaving nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np
import pytest

from kakeya.v1 import runtime_pb2
from tests.support import calls
from tests.support import neighbourhood as nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXTS = [
    [index * 11 % 96 for index in range(300)],
    [5],
    [index * 13 % 96 for index in range(70)],
]
LONG = [index * 13 % 96 for index in range(4000)]


def request(token_ids: Sequence[int], model_id: str = "random") -> runtime_pb2.EmbedRequest:
    return runtime_pb2.EmbedRequest(model_id=model_id, token_ids=token_ids)


def embedding(client: calls.Caller, token_ids: Sequence[int]) -> Any:
    return client.stub.Embed(request(token_ids), timeout=60)


async def test_a_vector_is_the_same_alone_and_beside_generations(
    client: calls.Caller, verifier: nodes.Node
) -> None:
    sessions = len(verifier.roles.sessions)
    (served,) = verifier.roles.verifier.by_model.values()
    used = served.verifier.pool.used_bytes
    alone = [await embedding(client, text) for text in TEXTS]
    for each in alone:
        values = np.array(each.values)
        assert len(values) == served.verifier.info.hidden_size
        assert np.linalg.norm(values) == pytest.approx(1.0, abs=1e-6)
        assert each.model.weights_digest == served.offer.weights_digest
    talking = await client.open()
    await client.append(talking, TEXTS[2])
    expected = await client.generate(talking, 40)
    other = await client.open()
    await client.append(other, TEXTS[2])
    stream, *together = await asyncio.gather(
        client.generate(other, 40), *(embedding(client, text) for text in TEXTS * 2)
    )
    assert stream.token_ids == expected.token_ids
    for got, each in zip(together, alone * 2, strict=True):
        assert got.values == each.values
    for session in (talking, other):
        await client.close(session)
    assert len(verifier.roles.sessions) == sessions
    assert served.verifier.pool.used_bytes == used


async def test_what_has_no_vector_says_why(client: calls.Caller, verifier: nodes.Node) -> None:
    registry = verifier.roles.sessions
    (served,) = verifier.roles.verifier.by_model.values()
    before = len(registry)
    most = served.verifier.info.context_length
    for token_ids, model_id, reason in (
        ([], "random", "EMPTY_APPEND"),
        ([1, 96], "random", "TOKEN_OUT_OF_VOCABULARY"),
        ([1] * (most + 1), "random", "CONTEXT_EXCEEDED"),
        ([1], "ngram", "MODEL_NOT_FOUND"),
        ([1], "", "MODEL_NOT_FOUND"),
    ):
        asked = request(token_ids, model_id)
        refused = await calls.refused_by(client.stub.Embed(asked, timeout=60))
        assert refused.reason == reason, refused
        if reason == "CONTEXT_EXCEEDED":
            assert refused.metadata["history_limit"] == str(most)
    budget = served.budget
    whole = budget.nbytes
    registry.share(budget, served.verifier.pool.used_bytes + 100_000)
    refused = await calls.refused_by(embedding(client, LONG))
    registry.share(budget, whole)
    assert (refused.code, refused.reason) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "OUT_OF_KV_MEMORY",
    )
    assert len(registry) == before


async def test_a_caller_that_leaves_stops_the_reading(
    client: calls.Caller, verifier: nodes.Node
) -> None:
    registry = verifier.roles.sessions
    (served,) = verifier.roles.verifier.by_model.values()
    before, used = len(registry), served.verifier.pool.used_bytes
    call = embedding(client, LONG)
    await calls.until(lambda: len(registry) > before)
    call.cancel()
    await calls.until(lambda: len(registry) == before)
    assert served.verifier.pool.used_bytes == used
