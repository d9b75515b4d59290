"""Sampling parameters over the wire: what they do to a stream, with drafts and without."""

from __future__ import annotations

import math

import pytest

from kakeya.v1 import runtime_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 7 % 96 for index in range(40)]


@pytest.fixture
def stream(client):
    """stream(count, **fields): the messages of one generation behind PROMPT."""

    async def generate(count, **fields):
        session = await client.open()
        await client.append(session, PROMPT)
        request = runtime_pb2.GenerateRequest(session_id=session, max_tokens=count, **fields)
        return [message async for message in client.stub.Generate(request, timeout=60)]

    return generate


async def test_stop_ids_of_a_generation_are_besides_those_of_the_session(client) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    tokens = (await client.generate(session, 40)).token_ids
    late, early = tokens[20], next(each for each in tokens if each != tokens[20])
    stopped = []
    for fields in ({"stop_token_ids": [early]}, {}):
        again = await client.open(stop_token_ids=[late])
        await client.append(again, PROMPT)
        end = await client.generate(again, 40, **fields)
        assert end.done.stop_reason == runtime_pb2.STOP_REASON_STOP_TOKEN
        stopped.append(end.token_ids)
    assert stopped[0] == tokens[: tokens.index(early) + 1]
    assert stopped[1] == tokens[: tokens.index(late) + 1]


async def test_log_probabilities_are_one_a_token_and_alternatives_are_ranked(stream) -> None:
    for message in (await stream(20, top_log_probabilities=3))[:-1]:
        tokens = message.tokens
        assert len(tokens.log_probabilities) == len(tokens.alternatives) == len(tokens.token_ids)
        for token_id, value, alternatives in zip(
            tokens.token_ids, tokens.log_probabilities, tokens.alternatives, strict=True
        ):
            assert len(alternatives.token_ids) == len(alternatives.log_probabilities) == 3
            assert list(alternatives.log_probabilities) == sorted(
                alternatives.log_probabilities, reverse=True
            )
            # Greedy, so the most probable one was taken.
            assert (alternatives.token_ids[0], alternatives.log_probabilities[0]) == (
                token_id,
                value,
            )
            assert sum(map(math.exp, alternatives.log_probabilities)) <= 1.0 + 1e-9
    for fields, count in (({}, 0), ({"top_log_probabilities": 0}, 1)):
        tokens = (await stream(1, **fields))[0].tokens
        assert (len(tokens.log_probabilities), len(tokens.alternatives)) == (count, 0)
