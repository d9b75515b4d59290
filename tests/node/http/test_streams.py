"""Streams whose client leaves, is slow, or waits; and nodes that leave meanwhile."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kakeya import AsyncClient, NodeLoad
from kakeya_fleet.node.config.config import split_address
from kakeya_fleet.node.http import responding
from kakeya_fleet.node.http.answer_feed import AnswerFeed
from kakeya_fleet.node.http.answering import Happening
from kakeya_fleet.node.http.answering import answer as answers
from tests.node.http.conftest import Eventually, HttpFleet, RunAgent, ServeHttp, UntilReady, http_of

# Alone and without an end of its own: busy machines are slow to leave, not quick to finish.
LONG = {
    "model": "tiny",
    "prompt": "import os\n",
    "max_tokens": 1900,
    "stream": True,
    "logit_bias": {"0": -100},
    "kakeya": {"speculation": "off"},
}


async def load_of(address: str) -> NodeLoad:
    async with AsyncClient(address) as client:
        return (await client.fleet.node()).load


async def generated(http_address: str) -> float:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{http_address}/metrics") as answer,
    ):
        lines = (await answer.text()).splitlines()
    name = "kakeya_tokens_generated_total "
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


UntilFree = Callable[[], Awaitable[None]]
UntilGenerated = Callable[[float], Awaitable[None]]


@pytest.fixture
async def until_nothing_is_open(fleet: HttpFleet, eventually: Eventually) -> UntilFree:
    """Nothing but the chats that other tests left, which are kept for a while."""

    async def nothing_runs() -> bool:
        return not (await load_of(fleet.one.address)).generating_count

    await eventually(nothing_runs)
    kept = (await load_of(fleet.one.address)).session_count

    async def is_free() -> bool:
        # A generation that was cancelled may outlast its session by a step.
        load = await load_of(fleet.one.address)
        return load.session_count <= kept and not load.generating_count

    return lambda: eventually(is_free)


@pytest.fixture
def until_generated(fleet: HttpFleet, eventually: Eventually) -> UntilGenerated:
    """until_generated(total): the node has committed more tokens than that in all."""

    async def wait(total: float) -> None:
        async def did() -> bool:
            return await generated(http_of(fleet.one)) > total

        await eventually(did)

    return wait


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("way", ["one", "gate"])
async def test_a_client_that_leaves_ends_its_generation(
    fleet: HttpFleet,
    stream: bool,
    way: str,
    until_nothing_is_open: UntilFree,
    until_generated: UntilGenerated,
) -> None:
    address = getattr(fleet, way).ready["http_address"]
    home = http_of(fleet.one)
    await until_nothing_is_open()
    before = await generated(home)
    async with aiohttp.ClientSession() as session:
        asking = asyncio.ensure_future(
            session.post(f"http://{address}/v1/completions", json={**LONG, "stream": stream})
        )
        generating = asyncio.ensure_future(until_generated(before + 2))
        await asyncio.wait({asking, generating}, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            # A stream has begun; nothing else ends so soon but a refusal, which says why.
            assert asking.result().status == 200, await asking.result().text()
        await generating
        if stream:
            answer = await asking
            assert (await answer.content.readline()).startswith(b"data: ")
            answer.close()
        else:
            asking.cancel()
            await asyncio.wait({asking})
    await until_nothing_is_open()
    after = await generated(home)
    assert after - before < 1900
    assert await generated(home) == after


@pytest.mark.usefixtures("slow_reading")
async def test_a_client_that_leaves_while_its_prompt_is_read_ends_that(
    serve: ServeHttp, until_nothing_is_open: UntilFree
) -> None:
    address = await serve(keep_alive_seconds=0.02)
    await until_nothing_is_open()
    asked = {**LONG, "prompt": "x = [1, 2]\n" * 150, "max_tokens": 200}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{address}/v1/completions", json=asked) as answer,
    ):
        while not (await answer.content.readline()).startswith(b": prompt "):
            assert not answer.content.at_eof()
        answer.close()
    await until_nothing_is_open()


async def test_a_client_that_takes_nothing_is_cut_off(
    fleet: HttpFleet,
    serve: ServeHttp,
    until_nothing_is_open: UntilFree,
    until_generated: UntilGenerated,
) -> None:
    address = await serve(send_buffer=4096, write_seconds=0.1)
    home = http_of(fleet.one)
    await until_nothing_is_open()
    before = await generated(home)
    body = json.dumps({**LONG, "logprobs": 20}).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {address}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        # Its answer lasts longer than this process, which cuts off, may be busy.
        with fleet.one.slowed():
            await loop.sock_connect(slow, split_address("http", address))
            await loop.sock_sendall(slow, head.encode() + body)
            await until_generated(before)
            await until_nothing_is_open()
        assert await generated(home) - before < 1900


async def test_a_stream_that_waits_shows_that_it_lives(serve: ServeHttp) -> None:
    address = await serve(keep_alive_seconds=0.02)
    asked = {**LONG, "prompt": "x = [1, 2]\n" * 150, "max_tokens": 2}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{address}/v1/completions", json=asked) as answer,
    ):
        raw = await answer.read()
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert raw.startswith((b": keep-alive\n\n", b": prompt "))
    assert raw.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("path", "sign"),
    [
        ("/v1/messages", b'event: ping\ndata: {"type": "ping"}\n\n'),
        ("/v1/responses", b"\n\n: "),
        ("/api/chat", b'"message": {"role": "assistant", "content": ""}, "done": false}\n'),
    ],
)
async def test_each_api_has_a_sign_of_its_own(serve: ServeHttp, path: str, sign: bytes) -> None:
    """While the prompt is computed; what comes after is the answer as ever."""
    address = await serve(keep_alive_seconds=0.02)
    said = "x = [1, 2]\n" * 150
    chat = [{"role": "user", "content": said}]
    bodies: dict[str, dict[str, object]] = {
        "/v1/messages": {"messages": chat, "max_tokens": 2, "temperature": 0},
        "/v1/responses": {"input": said, "max_output_tokens": 2, "temperature": 0},
        "/api/chat": {"messages": chat, "options": {"num_predict": 2, "temperature": 0}},
    }
    body = {"model": "tiny", "stream": True, "kakeya": {"reuse": False}, **bodies[path]}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{address}{path}", json=body) as answer,
    ):
        raw = await answer.read()
    assert sign in raw
    last = raw.strip().rpartition(b"\n")[2].removeprefix(b"data: ")
    ended = json.loads(last)
    assert ended.get("done") or ended["type"] in ("message_stop", "response.incomplete")


@pytest.mark.parametrize("path", ["/api/chat", "/v1/messages"])
async def test_nothing_comes_behind_the_end_however_long_its_session_takes_to_close(
    serve: ServeHttp, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of Ollama's that nothing is done yet would be taken for more of the answer."""
    take, ended, silences = AnswerFeed.take, asyncio.Event(), asyncio.Semaphore(0)

    async def slowly(*given: Any) -> None:
        await answers(*given)
        ended.set()
        for _ in range(3):
            await silences.acquire()

    async def counted(feed: AnswerFeed, seconds: float) -> list[Happening] | None:
        happened = await take(feed, seconds)
        if happened is None and ended.is_set():
            silences.release()
        return happened

    monkeypatch.setattr(responding, "answer", slowly)
    monkeypatch.setattr(AnswerFeed, "take", counted)
    address = await serve(keep_alive_seconds=0.02)
    chat = [{"role": "user", "content": "x = [1, 2]"}]
    limits = {"max_tokens": 2} if path == "/v1/messages" else {"options": {"num_predict": 2}}
    body = {"model": "tiny", "stream": True, "messages": chat, **limits}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{address}{path}", json=body) as answered,
    ):
        raw = await answered.read()
    last = json.loads(raw.strip().rpartition(b"\n")[2].removeprefix(b"data: "))
    assert last.get("done") or last.get("type") == "message_stop", raw


async def test_an_answer_that_its_node_cannot_end_says_so_in_the_stream(
    run_agent: RunAgent, toy: Path, until_ready: UntilReady
) -> None:
    agent, joined = await run_agent(serve=[f"verifier={toy}"])
    await until_ready(agent)
    asked = {**LONG, "model": "toy", "prompt": "abc", "logit_bias": {"256": -100}}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{joined['http_address']}/v1/completions", json=asked) as answer,
    ):
        assert (await answer.content.readline()).startswith(b"data: ")
        agent.leave(5)
        raw = await answer.read()
    last = json.loads(raw.strip().rpartition(b"data: ")[2])
    assert last["error"]["code"] == "DRAINING"
    assert b"[DONE]" not in raw
