"""Chats: text in, text out, and a conversation that holds whatever happens meanwhile.

What both clients do alike stands in sdks/vectors.json.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

import kakeya
from kakeya import AsyncChat, AsyncClient, Client, StopReason
from kakeya.v1 import runtime_pb2
from tests.sdk.conftest import Pair
from tests.support.chat_files import END, TEMPLATE, chat_files
from tests.support.patience import PATIENCE_SECONDS
from tests.support.scripted_answers import next_token
from tests.support.scripted_node import ScriptedNode

if TYPE_CHECKING:
    from tests.support.scripted_node import Context

# A question of one word takes 6 ids, so that the first answer begins at position 6.
ANSWER = {6: "Light", 7: "▁", 8: "<0xE2>", 9: "<0x98>", 10: "<0x95>", 11: "!", 12: END}
TEXT = "Light ☕!"
ENDLESS = 1_000_000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def speaking(node: ScriptedNode, **files: object) -> ScriptedNode:
    """Says `TEXT` in seven tokens, one a block."""
    node.tokenizer_files = chat_files(ANSWER, **files)  # type: ignore[arg-type]
    node.block_size = 1
    node.ends_after = len(ANSWER)
    node.done = runtime_pb2.GenerateDone(stop_reason=runtime_pb2.STOP_REASON_STOP_TOKEN)
    return node


def told(chat: AsyncChat | kakeya.Chat) -> list[tuple[str, str]]:
    return [(each.role, each.content) for each in chat.messages]


async def test_a_stop_token_that_is_not_special_is_no_text_either(node: ScriptedNode) -> None:
    speaking(node, end_is_special=False)
    async with AsyncClient(node.address) as client, await client.chat() as chat:
        answer = chat.say("hello")
        assert await answer.text() == TEXT
        assert answer.done is not None
        assert answer.done.stop_reason is StopReason.STOP_TOKEN
        # The template's end is in the history already: the next turn does not write it again.
        before = chat.session.history
        node.ends_after = 2
        await chat.say("bye").text()
        assert chat.session.history[: len(before)] == before
    assert len(node.requests["AppendTokens"][1].token_ids) == 6
    assert not node.requests["ForkSession"]


async def test_options_of_the_chat_and_of_one_answer(node: ScriptedNode) -> None:
    speaking(node)
    async with AsyncClient(node.address) as client:
        chat = await client.chat(
            "tiny", max_tokens=5, sampling={"temperature": 0.5, "seed": 9}, window_tokens=64
        )
        with pytest.raises(kakeya.BadRequest):
            chat.say("hello", temperature=-1.0)
        with pytest.raises(TypeError, match="tokens"):
            await client.chat("tiny", tokens=[1])  # type: ignore[call-arg]
        await chat.say("hello", seed=3, stop_token_ids=[7]).text()
        await chat.say("bye", max_tokens=6).text()
    opened = node.requests["CreateSession"][0]
    assert (opened.window_tokens, len(opened.stop_token_ids)) == (64, 1)
    first, second = node.requests["Generate"]
    assert (first.max_tokens, first.temperature, first.seed) == (5, 0.5, 3)
    assert list(first.stop_token_ids) == [7]
    assert (second.max_tokens, second.temperature, second.seed) == (6, 0.5, 9)


async def test_another_verifier_goes_on_in_the_middle_of_an_answer(pair: Pair) -> None:
    first, second = pair
    for each in pair:
        speaking(each)
    # Silent where it is stopped: all that it sent has arrived.
    first.silent_after = 2
    second.ends_after = len(ANSWER) - 2
    async with AsyncClient(first.address) as client, await client.chat() as chat:
        pieces = []
        async for piece in chat.say("hello"):
            pieces.append(piece)
            if len(pieces) == 2:
                await first.stop()
        assert pieces == ["Light", " ", "☕", "!"]
        assert chat.session.address == second.address
        assert told(chat) == [("user", "hello"), ("assistant", TEXT)]


async def test_an_answer_that_fails_keeps_what_came_of_it(node: ScriptedNode) -> None:
    speaking(node)
    node.refuse("Generate", grpc.StatusCode.INTERNAL, reason="WORKER_FAULT", after_blocks=3)
    async with AsyncClient(node.address) as client:
        chat = await client.chat(resume=False)
        with pytest.raises(kakeya.KakeyaError):
            await chat.say("hello").text()
        # Two tokens were text, the third a byte that nobody saw.
        spoken = [("user", "hello"), ("assistant", "Light "), ("user", "bye")]
        assert told(chat) == spoken[:2]
        node.ends_after = 2
        await chat.say("bye").text()
        held = chat.session.history
        codec = await client.text("tiny")
    # As if it had been said so: the byte is gone from the history too.
    asked = codec.render_chat([{"role": role, "content": text} for role, text in spoken])
    assert held[:-2] == tuple(codec.encode(asked))


@pytest.mark.parametrize("method", ["AppendTokens", "Generate"])
async def test_a_question_without_an_answer_is_taken_back(node: ScriptedNode, method: str) -> None:
    speaking(node)
    node.refuse(method, grpc.StatusCode.RESOURCE_EXHAUSTED, reason="OUT_OF_KV_MEMORY")
    async with AsyncClient(node.address) as client, await client.chat(system="be kind") as chat:
        with pytest.raises(kakeya.OutOfKvMemory):
            await chat.say("why").text()
        assert told(chat) == [("system", "be kind")]
        await chat.say("hello").text()
        assert [role for role, _ in told(chat)] == ["system", "user", "assistant"]


async def test_a_template_that_refuses_leaves_the_conversation_as_it_was(
    node: ScriptedNode,
) -> None:
    refusing = "{% if messages[-1].content == 'bye' %}{{ raise_exception('no') }}{% endif %}"
    speaking(node, template=refusing + TEMPLATE)
    async with AsyncClient(node.address) as client, await client.chat() as chat:
        with pytest.raises(kakeya.ChatTemplateError):
            await chat.say("bye").text()
        assert await chat.say("hello").text() == TEXT
        assert told(chat) == [("user", "hello"), ("assistant", TEXT)]


async def test_a_cancelled_answer_keeps_what_came_and_the_chat_goes_on(node: ScriptedNode) -> None:
    speaking(node)
    node.silent_after = 2
    async with AsyncClient(node.address) as client, await client.chat() as chat:
        spoken = asyncio.Event()

        async def read() -> None:
            async for piece in chat.say("hello"):
                if piece == " ":
                    spoken.set()

        reading = asyncio.create_task(read())
        await spoken.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await asyncio.to_thread(node.streams[-1].cancelled.wait, PATIENCE_SECONDS)
        assert told(chat) == [("user", "hello"), ("assistant", "Light ")]
        node.silent_after = -1
        await chat.say("bye").text()
        assert [role for role, _ in told(chat)] == ["user", "assistant", "user", "assistant"]
        assert list(chat.session.history) == node.sessions[chat.session.session_id]


class Silent(ScriptedNode):
    """Appends, and says nothing about it, while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.appended_silently = asyncio.Event()
        self.is_silent = True

    async def AppendTokens(  # noqa: N802
        self, request: runtime_pb2.AppendTokensRequest, context: Context
    ) -> runtime_pb2.AppendTokensResponse:
        response = await super().AppendTokens(request, context)
        if self.is_silent:
            self.appended_silently.set()
            await asyncio.Event().wait()
        return response


async def test_a_question_that_was_cancelled_is_taken_back_and_the_chat_goes_on() -> None:
    node = Silent()
    speaking(node)
    await node.start()
    async with AsyncClient(node.address) as client, await client.chat() as chat:
        reading = asyncio.create_task(chat.say("why").text())
        await node.appended_silently.wait()
        assert told(chat) == [("user", "why")]
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert told(chat) == []
        node.is_silent = False
        assert await chat.say("hello").text() == TEXT
        assert list(chat.session.history) == node.sessions[chat.session.session_id]
    await node.stop()


async def test_leaving_while_the_question_is_sent_lets_the_next_wait_for_it() -> None:
    node = Silent()
    speaking(node)
    await node.start()
    async with AsyncClient(node.address) as client, await client.chat() as chat:
        answer = chat.say("why")
        reading = asyncio.create_task(answer.text())
        await node.appended_silently.wait()
        await answer.aclose()
        with pytest.raises(kakeya.SessionBusy):
            await chat.say("hello").text()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        node.is_silent = False
        assert await chat.say("hello").text() == TEXT
    await node.stop()


async def test_leaving_in_every_way_frees_the_chat(node: ScriptedNode) -> None:
    speaking(node)
    node.ends_after = -1
    async with AsyncClient(node.address) as client, await client.chat() as chat:
        async for _ in chat.say("hello", max_tokens=ENDLESS):
            break
        async with chat.say("bye", max_tokens=ENDLESS) as answer:
            pieces = aiter(answer)
            while not await anext(pieces):
                pass
        assert [piece async for piece in pieces] == []
        with pytest.raises(kakeya.StreamConsumed):
            await answer.text()
        assert len(chat.messages) == 4
        for stream in node.streams:
            assert await asyncio.to_thread(stream.cancelled.wait, PATIENCE_SECONDS)
        assert chat.undo() == "bye"
        assert chat.undo() == "hello"
        assert chat.undo() is None
        node.ends_after = len(ANSWER)
        assert await chat.say("hello").text() == TEXT


async def test_one_answer_at_a_time(node: ScriptedNode) -> None:
    speaking(node)
    async with AsyncClient(node.address) as client, await client.chat() as chat:
        pieces = aiter(chat.say("hello"))
        second = chat.say("bye")
        both = await asyncio.gather(anext(pieces), second.text(), return_exceptions=True)
        assert both[0] == "Light"
        assert isinstance(both[1], kakeya.SessionBusy)
        with pytest.raises(kakeya.SessionBusy):
            chat.undo()
        assert "".join([piece async for piece in pieces]) == TEXT[len("Light") :]
        assert told(chat) == [("user", "hello"), ("assistant", TEXT)]
        assert chat.undo() == "hello"


async def test_a_session_says_text_as_it_is(node: ScriptedNode) -> None:
    node.tokenizer_files = chat_files({1: "Light", 2: END}, template=None)
    node.ends_after = 2
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        answer = session.say("hello", max_tokens=9, stop_token_ids=[500])
        assert [piece async for piece in answer] == ["Light"]
        assert answer.done is not None
        assert session.history[1:] == (next_token(1), next_token(2))
        request = node.requests["Generate"][0]
        assert list(request.stop_token_ids) == [next_token(2), 500]
        with pytest.raises(kakeya.BadRequest):
            session.say("hello", max_tokens=0)
        both = await asyncio.gather(
            session.say("bye").text(), session.say("why").text(), return_exceptions=True
        )
        assert [type(each) for each in both] == [str, kakeya.SessionBusy]
        assert session.history_length == 6
        assert len(node.requests["GetTokenizer"]) == 1


def test_the_synchronous_chat(threaded_node: ScriptedNode) -> None:
    node = speaking(threaded_node)
    with Client(node.address) as client, client.chat() as chat:
        answer = chat.say("hello", max_tokens=ENDLESS)
        for _piece in answer:
            break
        assert told(chat)[-1] == ("assistant", "Light")
        assert answer.done is None
        assert chat.undo() == "hello"
        assert chat.say("bye").text() == TEXT
        text = "".join(chat.say("why"))
        assert told(chat)[-1] == ("assistant", text)
        assert chat.session.history_length == len(node.sessions[chat.session.session_id])
        with chat.session.fork() as fork:
            assert fork.say("hello").text() is not None
    assert not node.sessions
