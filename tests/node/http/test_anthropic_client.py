"""The official client of Anthropic against a real fleet."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from kakeya_fleet.node.http.answer_text import Piece
from kakeya_fleet.node.http.answering import Delta, End
from kakeya_fleet.node.http.message_shape import MessageShape
from kakeya_fleet.node.http.shape_facts import ShapeFacts
from tests.node.http.clients import openai
from tests.node.http.conftest import WEATHER_CALL, Ask, HttpFleet, OpenAiOf, http_of

if TYPE_CHECKING:
    import anthropic

TOOL: Any = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
GREEDY: dict[str, Any] = {"model": "toy", "max_tokens": 8, "temperature": 0}
# The client has no argument for it any more.
ASKED: dict[str, Any] = {"model": "toy", "max_tokens": 8, "extra_body": {"temperature": 0}}


@pytest.fixture
def library() -> ModuleType:
    # More than a second, which whoever runs another room's tests need not wait for.
    return importlib.import_module("anthropic")


@pytest.fixture
def client(fleet: HttpFleet, library: ModuleType) -> Iterator[anthropic.Anthropic]:
    with library.Anthropic(
        base_url=f"http://{http_of(fleet.one)}",
        api_key="any key will do",
        max_retries=0,
        timeout=60,
    ) as made:
        yield made


@pytest.fixture
def chat(fleet: HttpFleet, openai_of: OpenAiOf) -> openai.OpenAI:
    return openai_of(fleet.one)


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_a_message_is_the_chats_answer(client: anthropic.Anthropic, chat: openai.OpenAI) -> None:
    said = "Say something of rivers"
    message = client.messages.create(
        **ASKED,
        system=[{"type": "text", "text": "Be brief."}],
        messages=[{"role": "user", "content": [{"type": "text", "text": said}]}],
    )
    answer = chat.chat.completions.create(
        **GREEDY,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": said}],
    )
    assert text_of(message) == answer.choices[0].message.content
    assert (message.type, message.role, message.model) == ("message", "assistant", "toy")
    assert (message.stop_reason, message.stop_sequence) == ("max_tokens", None)
    assert answer.usage is not None
    usage = message.usage
    assert usage.cache_read_input_tokens == 0
    assert (usage.input_tokens, usage.output_tokens) == (answer.usage.prompt_tokens, 8)
    counted = client.messages.count_tokens(
        model="toy", system="Be brief.", messages=[{"role": "user", "content": said}]
    )
    assert counted.input_tokens == usage.input_tokens


def test_a_stream_has_the_message_and_its_next_turn_is_cached(client: anthropic.Anthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "Tell of rivers, " * 12}]
    whole = client.messages.create(**ASKED, messages=messages)
    with client.messages.stream(**ASKED, messages=messages) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert text_of(final) == text_of(whole)
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 8)
    raw = [kind for kind in kinds if kind not in ("text", "ping")]
    assert (raw[0], raw[1], raw[-1]) == ("message_start", "content_block_start", "message_stop")
    messages += [{"role": "assistant", "content": text_of(whole)}, {"role": "user", "content": "?"}]
    again = client.messages.create(**ASKED, messages=messages)
    cached = again.usage.cache_read_input_tokens
    assert cached is not None
    assert cached >= whole.usage.input_tokens - 16
    alone = {**ASKED, "extra_body": {"temperature": 0, "kakeya": {"reuse": False}}}
    fresh = client.messages.create(**alone, messages=messages)
    assert text_of(again) == text_of(fresh)
    assert fresh.usage.input_tokens == again.usage.input_tokens + cached


def test_the_stop_sequence_that_came_is_told(client: anthropic.Anthropic) -> None:
    messages: Any = [{"role": "user", "content": "Hello"}]
    text = text_of(client.messages.create(**ASKED, messages=messages))
    stops = [text[2:4], *(f"never {number}" for number in range(20))]
    stopped = client.messages.create(**ASKED, messages=messages, stop_sequences=stops)
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", stops[0])
    assert text_of(stopped) == text[: text.find(stops[0])]


@pytest.mark.parametrize("stream", [False, True])
def test_uses_of_tools_and_their_results_are_read(
    client: anthropic.Anthropic, ask: Ask, fleet: HttpFleet, stream: bool
) -> None:
    messages: Any = [
        {"role": "user", "content": "How is Oslo?"},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rain"},
                {"type": "text", "text": "And now?"},
            ],
        },
    ]
    if stream:
        with client.messages.stream(**ASKED, messages=messages, tools=[TOOL]) as answered:
            message = answered.get_final_message()
    else:
        message = client.messages.create(**ASKED, messages=messages, tools=[TOOL])
    chat = [
        {"role": "user", "content": "How is Oslo?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "toolu_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "Rain"},
        {"role": "user", "content": "And now?"},
    ]
    function = {
        "name": "weather",
        "parameters": TOOL["input_schema"],
        "description": TOOL["description"],
    }
    body = {**GREEDY, "messages": chat, "tools": [{"type": "function", "function": function}]}
    answer = ask(fleet.one, "/v1/chat/completions", body).json
    assert text_of(message) == answer["choices"][0]["message"]["content"]


def test_uses_of_tools_are_blocks_behind_the_text(library: ModuleType) -> None:
    facts = ShapeFacts("1", 0, "toy", "0" * 64, 1, 9, include_usage=True, scored=False)
    deltas = [Delta(0, Piece(text)) for text in ("Let me look. ", WEATHER_CALL)]
    end = End(0, "stop", None, 2, 2, 2, 0, 0.0, 4, "here", (), None)
    whole = MessageShape(facts, ["weather"], lambda: "toolu_1").whole(deltas, [end])
    message = library.types.Message.model_validate(whole)
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert (message.stop_reason, message.usage.cache_read_input_tokens) == ("tool_use", 4)
    assert message.usage.input_tokens == 5
    shape = MessageShape(facts, ["weather"], lambda: "toolu_1")
    events = [*shape.opening(), *(each for delta in deltas for each in shape.delta(delta))]
    events += [*shape.end(end), *shape.closing([end])]
    begun = [each for each in events if each["type"] == "content_block_start"]
    ended = [each for each in events if each["type"] == "content_block_stop"]
    assert [each["index"] for each in begun] == [each["index"] for each in ended] == [0, 1]
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
    assert begun[1]["content_block"] == use
    deltas_told = [each["delta"] for each in events if each["type"] == "content_block_delta"]
    assert deltas_told == [
        {"type": "text_delta", "text": "Let me look. "},
        {"type": "input_json_delta", "partial_json": '{"city": "Oslo"}'},
    ]


def test_errors_are_those_that_the_client_knows(
    client: anthropic.Anthropic, library: ModuleType
) -> None:
    messages: Any = [{"role": "user", "content": "Hi"}]
    with pytest.raises(library.NotFoundError) as missing:
        client.messages.create(model="claude-x", max_tokens=4, messages=messages)
    assert isinstance(missing.value.body, dict)
    assert missing.value.body["type"] == "error"
    error = missing.value.body["error"]
    assert (error["type"], error["code"]) == ("not_found_error", "MODEL_NOT_FOUND")
    assert missing.value.request_id == missing.value.body["request_id"]
    for refused in (
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"messages": [*messages, {"role": "assistant", "content": "I"}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
    ):
        with pytest.raises(library.BadRequestError) as caught:
            client.messages.create(**{**ASKED, "messages": messages, **refused})
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["error"]["code"] == "UNSUPPORTED"


def test_models_are_listed(client: anthropic.Anthropic) -> None:
    assert {model.id for model in client.models.list()} == {"tiny", "toy"}
    assert client.models.retrieve("tiny").display_name == "tiny"
