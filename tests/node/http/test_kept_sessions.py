"""Conversations that go on with the session of the turn before."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from kakeya import AsyncClient, AsyncSession, SessionNotFound
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.caller import Caller
from kakeya_fleet.node.admission.limits import HttpLimits, Limits
from kakeya_fleet.node.http.callers import CallersClients, HttpCaller
from kakeya_fleet.node.http.kept_sessions import (
    LEAST_SHARED_TOKENS,
    KeptSessions,
    SessionTerms,
    shared_bytes,
)
from kakeya_fleet.node.http.request_options import SessionFields
from kakeya_fleet.node.metrics import NodeMetrics
from tests.node.http.clients import openai
from tests.node.http.conftest import Ask, HttpFleet, OpenAiOf, RunAgent, UntilReady, until

ONE, OTHER = HttpCaller(Caller("127.0.0.1")), HttpCaller(Caller("key k"), "kky_k")
TERMS = SessionTerms("m", "0" * 64, SessionFields())
LONG = tuple(range(2 * LEAST_SHARED_TOKENS))


@dataclass
class FakeSession:
    history: tuple[int, ...]
    is_gone: bool = False
    is_closed: bool = False
    forked: list[int] = field(default_factory=list)

    @property
    def history_length(self) -> int:
        return len(self.history)

    async def fork(self, length: int) -> FakeSession:
        if self.is_gone:
            raise SessionNotFound("gone")
        self.forked.append(length)
        return FakeSession(self.history[:length])

    async def __aenter__(self) -> FakeSession:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.is_closed = True


class OneClient:
    """Clients of all callers, and how many are in use."""

    def __init__(self) -> None:
        self.used = 0

    @asynccontextmanager
    async def client_of(self, _caller: HttpCaller) -> AsyncIterator[AsyncClient]:
        self.used += 1
        yield cast(AsyncClient, self)
        self.used -= 1


class Keeping:
    def __init__(self, **limits: Any) -> None:
        self.clients = OneClient()
        allowances = Allowances(Limits(http=HttpLimits(**limits)), NodeMetrics())
        self.kept = KeptSessions(cast(CallersClients, self.clients), allowances)

    async def keep(
        self, *history: int, asker: HttpCaller = ONE, terms: SessionTerms = TERMS, **more: Any
    ) -> FakeSession:
        session = FakeSession(tuple(history), **more)
        await self.kept.keep(asker, terms, cast(AsyncSession, session))
        return session

    async def take(
        self, *prompt: int, asker: HttpCaller = ONE, terms: SessionTerms = TERMS
    ) -> AsyncSession | None:
        return await self.kept.take(asker, terms, prompt)


async def test_a_prompt_that_begins_with_the_whole_history_goes_on_with_it_once() -> None:
    keeping = Keeping()
    short, longer = await keeping.keep(1, 2, 3), await keeping.keep(1, 2, 3, 4)
    assert await keeping.take(1, 2, 9) is None
    taken = await keeping.take(1, 2, 3, 4, 5)
    assert cast(object, taken) is longer
    assert keeping.clients.used == 1
    taken = await keeping.take(1, 2, 3, 4, 5)
    assert cast(object, taken) is short
    assert await keeping.take(1, 2, 3, 4, 5) is None
    assert keeping.clients.used == 0


async def test_nobody_goes_on_with_anothers_nor_with_one_that_was_opened_otherwise() -> None:
    keeping = Keeping()
    await keeping.keep(1, 2, 3)
    window = SessionTerms("m", "0" * 64, SessionFields(window_tokens=8))
    weights = SessionTerms("m", "1" * 64, SessionFields())
    assert await keeping.take(1, 2, 3, 4, asker=OTHER) is None
    assert await keeping.take(1, 2, 3, 4, asker=HttpCaller(ONE.caller, "kky_x")) is None
    assert await keeping.take(1, 2, 3, 4, terms=window) is None
    assert await keeping.take(1, 2, 3, 4, terms=weights) is None
    assert await keeping.take(1, 2, 3, 4) is not None


async def test_one_that_went_on_otherwise_is_forked_where_they_part_and_stays() -> None:
    keeping = Keeping()
    kept = await keeping.keep(*LONG)
    for part in (LEAST_SHARED_TOKENS, LEAST_SHARED_TOKENS + 7):
        taken = await keeping.take(*LONG[:part], 999, 998)
        assert taken is not None
        assert taken.history == LONG[:part]
    assert kept.forked == [LEAST_SHARED_TOKENS, LEAST_SHARED_TOKENS + 7]
    assert await keeping.take(*LONG[: LEAST_SHARED_TOKENS - 1], 999) is None
    # The same prompt again: its last token is appended, and room for the answer taken with it.
    again = await keeping.take(*LONG)
    assert again is not None
    assert again.history == LONG[:-1]
    assert cast(object, await keeping.take(*LONG, 1)) is kept


async def test_one_that_is_gone_is_forgotten() -> None:
    keeping = Keeping()
    kept = await keeping.keep(*LONG, is_gone=True)
    assert await keeping.take(*LONG[:-1], 999) is None
    assert await keeping.take(*LONG, 1) is None
    await keeping.kept.close()
    assert (kept.is_closed, keeping.clients.used) == (True, 0)


async def test_their_number_and_their_ids_are_bounded_and_the_greedy_lose_first() -> None:
    keeping = Keeping(kept_sessions=5, kept_bytes=4 * 100)
    small = await keeping.keep(7, asker=OTHER)
    mine = [await keeping.keep(index) for index in range(6)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    # The last fifth is for those who have less.
    assert [each.is_closed for each in mine] == [True, True, True, False, False, False]
    assert not small.is_closed
    for first in (100, 200):
        await keeping.keep(*range(first, first + 70))
    assert await keeping.take(5, 1) is None
    assert await keeping.take(*range(100, 170), 1) is None
    # What never fits is closed, and takes nothing from others.
    large = await keeping.keep(*range(101))
    assert await keeping.take(*range(200, 270), 1) is not None
    assert not small.is_closed
    await keeping.kept.close()
    assert large.is_closed
    assert small.is_closed
    assert keeping.clients.used == 0


async def test_they_are_kept_for_a_time() -> None:
    keeping = Keeping(kept_seconds=0.0)
    kept = await keeping.keep(1, 2)

    async def is_closed() -> bool:
        return kept.is_closed

    await until(is_closed)
    assert await keeping.take(1, 2, 3) is None


def test_how_much_two_histories_share() -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    for _ in range(300):
        one = [rng.randrange(1 << 32) for _ in range(rng.randrange(40))]
        shared = rng.randint(0, len(one))
        other = one[:shared] + [rng.randrange(1 << 32) for _ in range(rng.randrange(5))]
        longest = min(len(one), len(other))
        expected = next((i for i in range(longest) if one[i] != other[i]), longest)
        found = shared_bytes(array("I", one).tobytes(), array("I", other).tobytes())
        assert found == 4 * expected, seed


GREEDY: dict[str, Any] = {"temperature": 0}
DRAWN: dict[str, Any] = {"temperature": 0.9, "seed": 11}
# What the node generated behind a stop string is none of the conversation.
STOPPED: dict[str, Any] = {"temperature": 0.9, "seed": 3, "stop": ["e", "("]}


@pytest.mark.parametrize(
    ("way", "sampling"),
    [("one", GREEDY), ("one", STOPPED), ("gate", DRAWN), ("gate", STOPPED)],
)
def test_six_turns_are_those_of_fresh_sessions(
    fleet: HttpFleet, openai_of: OpenAiOf, sampling: dict[str, Any], way: str
) -> None:
    client = openai_of(getattr(fleet, way))
    messages: list[Any] = [{"role": "system", "content": f"Some rules, {way} {sampling}. " * 4}]
    prompt_tokens = 0
    for turn in range(6):
        messages.append({"role": "user", "content": f"Question {turn}?"})

        def ask(*, reuse: bool, messages: list[Any] = messages) -> openai.types.chat.ChatCompletion:
            answer = client.chat.completions.create(
                model="tiny",
                messages=messages,
                max_tokens=12,
                extra_body={"kakeya": {"reuse": reuse}},
                **sampling,
            )
            assert isinstance(answer, openai.types.chat.ChatCompletion)
            return answer

        fresh, kept = ask(reuse=False), ask(reuse=True)
        assert kept.choices == fresh.choices
        for answer, least in ((fresh, 0), (kept, prompt_tokens)):
            assert answer.usage is not None
            details = answer.usage.prompt_tokens_details
            assert details is not None
            assert details.cached_tokens is not None
            assert least <= details.cached_tokens < answer.usage.prompt_tokens
            assert (details.cached_tokens > 0) == (least > 0)
        assert kept.usage is not None
        prompt_tokens = kept.usage.prompt_tokens - 8
        messages.append({"role": "assistant", "content": kept.choices[0].message.content})


@pytest.mark.parametrize("fate", ["stays", "rests", "ends"])
async def test_what_became_of_it_meanwhile_changes_no_token_and_is_told(
    run_agent: RunAgent, toy: Path, until_ready: UntilReady, ask: Ask, fate: str
) -> None:
    agent, joined = await run_agent(serve=[f"verifier={toy}"])
    await until_ready(agent)
    registry = agent.roles.sessions
    messages = [{"role": "user", "content": "A question, " * 10}]

    async def say(*, reuse: bool) -> tuple[str, int, int]:
        body = {
            "model": "toy",
            "messages": messages,
            "max_tokens": 8,
            "seed": 5,
            "kakeya": {"reuse": reuse},
        }
        answer = await asyncio.to_thread(ask, joined["http_address"], "/v1/chat/completions", body)
        usage = answer.json["usage"]
        told = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
        return answer.json["choices"][0]["message"]["content"], *told

    text, prompt_tokens, _none = await say(reuse=True)
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on"}]
    (session,) = registry.page()[0]
    assert session.record.gives_way
    if fate == "rests":
        assert session.record.session.rest()
    elif fate == "ends":
        registry.close(session.session_id)
    again, _tokens, cached = await say(reuse=True)
    assert again == (await say(reuse=False))[0]
    assert (cached >= prompt_tokens - 16) if fate == "stays" else (cached == 0)
    registry.close_all()
