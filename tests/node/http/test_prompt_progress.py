"""While a long prompt is read a stream says how far: in comments, and as data for who asks."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
import pytest

from kakeya import AsyncSession, NodeUnreachable
from kakeya_fleet.node.http.dialect import ANTHROPIC, OLLAMA, OPENAI, RESPONSES
from kakeya_fleet.node.http.prompt_reading import (
    LONG_PROMPT_TOKENS,
    PromptProgress,
    PromptReading,
)
from tests.node.http.clients import openai
from tests.node.http.conftest import ServeHttp

SAID = "x = [1, 2]\n" * 150
CHAT: list[Any] = [{"role": "user", "content": SAID}]
BODIES: dict[str, dict[str, object]] = {
    "/v1/completions": {"prompt": SAID, "max_tokens": 2},
    "/v1/chat/completions": {"messages": CHAT, "max_tokens": 2},
    "/v1/responses": {"input": SAID, "max_output_tokens": 2},
}
OFTEN = 0.02
"""Seconds of silence, of which a long prompt has many."""


@dataclass
class FakeSession:
    """A session that says that so many positions are computed, one number a question."""

    computed: list[int]
    computed_token_count: int = field(default=0, init=False)

    async def info(self) -> FakeSession:
        if not self.computed:
            raise NodeUnreachable("gone")
        self.computed_token_count = self.computed.pop(0)
        return self


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def told(reading: PromptReading) -> tuple[int, int, int]:
    known = reading.known
    assert known is not None
    return known.total, known.cached, known.processed


async def test_the_prompts_of_a_request_are_counted_together() -> None:
    reading = PromptReading([100, 300], Clock())
    assert reading.known is None
    one, other = FakeSession([64, 99]), FakeSession([200, 250])
    with reading.by(0, cast(AsyncSession, one)):
        assert told(reading) == (400, 0, 0)
        with reading.by(1, cast(AsyncSession, other), cached=120):
            await reading.look()
            assert told(reading) == (400, 120, 264)
            await reading.look()
            # What a node cannot tell now is as it was.
            await reading.look()
            assert told(reading) == (400, 120, 349)
        assert not reading.is_over
        reading.read(1, 120)
    reading.read(0, 0)
    assert reading.is_over
    assert told(reading) == (400, 120, 400)
    assert reading.known == reading.known, "the time of an end goes on"


async def test_what_a_rested_session_computes_again_was_not_there() -> None:
    reading = PromptReading([300], Clock())
    with reading.by(0, cast(AsyncSession, FakeSession([64, 256])), cached=250):
        assert told(reading) == (300, 250, 250)
        await reading.look()
        assert told(reading) == (300, 0, 64)
        await reading.look()
        assert told(reading) == (300, 0, 256)


def test_only_an_api_with_comments_says_it_unasked_and_only_while_it_is_read() -> None:
    half, whole = PromptProgress(4000, 0, 1200, 1.0), PromptProgress(4000, 0, 4000, 2.0)
    for each in (OPENAI, RESPONSES):
        assert each.sign_of_life(half) == b": prompt 1200 of 4000 tokens\n\n"
    for each in (OPENAI, RESPONSES, ANTHROPIC, OLLAMA):
        assert each.sign_of_life(None) == each.sign_of_life(whole) == each.keep_alive
    for each in (ANTHROPIC, OLLAMA):
        assert each.sign_of_life(half) == each.keep_alive


def rises(counts: list[int], total: int) -> bool:
    return counts == sorted(counts) and 0 < counts[-1] <= total and len(set(counts)) > 1


@pytest.mark.usefixtures("slow_reading")
@pytest.mark.parametrize("path", BODIES)
async def test_comments_say_how_far_it_is(serve: ServeHttp, path: str) -> None:
    address = await serve(keep_alive_seconds=OFTEN)
    body = {"model": "tiny", "stream": True, "kakeya": {"reuse": False}, **BODIES[path]}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{address}{path}", json=body) as answer,
    ):
        raw = (await answer.read()).decode()
    said = re.findall(r"^: prompt (\d+) of (\d+) tokens$", raw, re.MULTILINE)
    totals = {int(total) for _count, total in said}
    assert len(totals) == 1
    assert totals.pop() >= LONG_PROMPT_TOKENS
    assert rises([int(count) for count, _total in said], int(said[0][1]))
    assert "prompt_progress" not in raw


@pytest.mark.usefixtures("slow_reading")
@pytest.mark.parametrize("way", ["one", "gate"])
async def test_the_official_client_takes_it_as_data(serve: ServeHttp, way: str) -> None:
    address = await serve(way, keep_alive_seconds=OFTEN)
    client = openai.AsyncOpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0)
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 2, "temperature": 0}
    async with client:

        async def turn(messages: list[Any]) -> tuple[list[dict[str, int]], str, Any]:
            """What is told of the prompt before the first word; the words, and the usage."""
            progress: list[dict[str, int]] = []
            text, usage = "", None
            stream = await client.chat.completions.create(
                messages=messages,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"return_progress": True},
                **asked,
            )
            async for chunk in stream:
                if found := (chunk.model_extra or {}).get("prompt_progress"):
                    assert not text
                    assert not chunk.choices[0].delta.content
                    progress.append(found)
                text += "".join(each.delta.content or "" for each in chunk.choices)
                usage = chunk.usage or usage
            return progress, text, usage

        progress, text, usage = await turn(CHAT)
        total = usage.prompt_tokens
        assert {(each["total"], each["cache"]) for each in progress} == {(total, 0)}
        assert rises([each["processed"] for each in progress], total)
        times = [each["time_ms"] for each in progress]
        assert times == sorted(times)
        assert progress[-1]["processed"] == total

        whole = await client.chat.completions.with_raw_response.create(
            messages=CHAT, extra_body={"return_progress": True, "kakeya": {"reuse": False}}, **asked
        )
        assert whole.parse().choices[0].message.content == text
        assert whole.headers["X-Ignored-Fields"] == "return_progress"

        following = [
            *CHAT,
            {"role": "assistant", "content": text},
            {"role": "user", "content": "y"},
        ]
        progress, _text, usage = await turn(following)
        assert usage.prompt_tokens_details.cached_tokens > LONG_PROMPT_TOKENS
        assert progress[-1]["cache"] == usage.prompt_tokens_details.cached_tokens
        assert progress[-1]["processed"] == progress[-1]["total"] == usage.prompt_tokens


@pytest.mark.usefixtures("slow_reading")
async def test_prompts_of_text_are_told_together(serve: ServeHttp) -> None:
    address = await serve(keep_alive_seconds=OFTEN)
    body = {"model": "tiny", "prompt": [SAID, "x = 1"], "max_tokens": 2, "stream": True}
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://{address}/v1/completions", json={**body, "return_progress": True}
        ) as answer,
    ):
        lines = (await answer.text()).splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    told = [each["prompt_progress"] for each in chunks if "prompt_progress" in each]
    assert rises([each["processed"] for each in told], told[-1]["total"])
    assert told[-1]["processed"] == told[-1]["total"]
    assert all(each["choices"][0]["text"] == "" for each in chunks if "prompt_progress" in each)
