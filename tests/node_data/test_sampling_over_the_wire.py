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


def ids_of(messages):
    return [each for message in messages[:-1] for each in message.tokens.token_ids]


async def test_what_is_not_given_changes_nothing(stream) -> None:
    plain = ids_of(await stream(30))
    neutral = {"min_p": 0.0, "repetition_penalty": 1.0, "logit_bias": {3: 0.0}}
    assert ids_of(await stream(30, **neutral)) == plain
    assert ids_of(await stream(30, repetition_penalty=0.0)) == plain


async def test_a_banned_id_never_comes_and_a_favoured_one_always(stream) -> None:
    plain = ids_of(await stream(30))
    banned = dict.fromkeys(plain, -math.inf)
    assert not set(ids_of(await stream(30, logit_bias=banned))) & set(plain)
    assert set(ids_of(await stream(5, temperature=1.0, logit_bias={11: 1e4}))) == {11}


async def test_a_heavy_penalty_repeats_nothing_that_it_need_not(stream) -> None:
    """In a vocabulary of 96 with 40 tokens of prompt, 20 more are all new."""
    fields = {"repetition_penalty": 64.0, "logit_bias": dict.fromkeys(range(96), 1000.0)}
    ids = ids_of(await stream(20, **fields))
    assert not set(ids) & set(PROMPT)
    assert len(set(ids)) == len(ids)


async def test_min_p_of_one_is_greedy(stream) -> None:
    greedy = ids_of(await stream(20))
    assert ids_of(await stream(20, temperature=1.0, seed=3, min_p=1.0)) == greedy
    assert ids_of(await stream(20, temperature=9.0, seed=3)) != greedy


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
