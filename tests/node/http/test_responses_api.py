"""OpenAI's /v1/responses by the official client, against a real fleet."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from kakeya_fleet.node.http.answer_text import Piece
from kakeya_fleet.node.http.answering import Delta, End
from kakeya_fleet.node.http.response_request import read_response
from kakeya_fleet.node.http.response_shape import ResponseShape
from kakeya_fleet.node.http.shape_facts import ShapeFacts
from tests.node.http.clients import openai
from tests.node.http.conftest import WEATHER_CALL, HttpFleet, OpenAiOf

ASKED: dict[str, Any] = {"model": "toy", "max_output_tokens": 8, "temperature": 0}
TOOL: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


@pytest.fixture
def client(fleet: HttpFleet, openai_of: OpenAiOf) -> openai.OpenAI:
    return openai_of(fleet.one)


def test_a_response_is_the_chats_answer(client: openai.OpenAI) -> None:
    said = "Say something of mountains"
    response = client.responses.create(**ASKED, instructions="Be brief.", input=said)
    answer = client.chat.completions.create(
        model="toy",
        max_tokens=8,
        temperature=0,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": said}],
    )
    assert response.output_text == answer.choices[0].message.content
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert answer.usage is not None
    assert response.usage is not None
    assert response.usage.input_tokens == answer.usage.prompt_tokens
    assert response.usage.input_tokens_details.cached_tokens == 0
    assert response.usage.output_tokens == 8


def test_a_stream_has_the_response_and_its_next_turn_is_cached(client: openai.OpenAI) -> None:
    items: list[Any] = [{"role": "user", "content": "Tell of mountains, " * 12}]
    events = list(client.responses.create(**ASKED, input=items, stream=True))
    last = events[-1]
    assert last.type == "response.incomplete"
    final = last.response
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    deltas = "".join(each.delta for each in events if each.type == "response.output_text.delta")
    assert deltas == final.output_text
    items += [
        {"role": "assistant", "content": [{"type": "output_text", "text": deltas}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Go on"}]},
    ]
    again = client.responses.create(**ASKED, input=items)
    fresh = client.responses.create(**ASKED, input=items, extra_body={"kakeya": {"reuse": False}})
    assert again.output_text == fresh.output_text
    assert again.usage is not None
    assert final.usage is not None
    assert again.usage.input_tokens_details.cached_tokens >= final.usage.input_tokens - 16


def test_calls_and_their_outputs_are_read(client: openai.OpenAI) -> None:
    items: list[Any] = [
        {"role": "user", "content": "How is Oslo?"},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "weather",
            "arguments": '{"city": "Oslo"}',
        },
        {"type": "function_call_output", "call_id": "c1", "output": "Rain"},
    ]
    response = client.responses.create(**ASKED, input=items, tools=[TOOL])
    function = {key: TOOL[key] for key in ("name", "description", "parameters")}
    answer = client.chat.completions.create(
        model="toy",
        max_tokens=8,
        temperature=0,
        tools=[{"type": "function", "function": function}],
        messages=[
            {"role": "user", "content": "How is Oslo?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "Rain"},
        ],
    )
    assert response.output_text == answer.choices[0].message.content


def test_an_answer_is_held_to_a_schema(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    form: Any = {"type": "json_schema", "name": "n", "schema": schema}
    response = client.responses.create(
        **{**ASKED, "input": "Hi", "max_output_tokens": 200}, text={"format": form}
    )
    assert response.status == "incomplete" or json.loads(response.output_text)["n"] in (1, 2)


@pytest.mark.parametrize(
    "refused",
    [
        {"previous_response_id": "resp_1"},
        {"text": {"verbosity": "low"}},
        {"tools": [{"type": "web_search"}]},
        {"reasoning": {"effort": "high"}},
        {"background": True},
    ],
)
def test_what_cannot_be_is_refused_by_name(client: openai.OpenAI, refused: Any) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{**ASKED, "input": "Hi", **refused})
    assert caught.value.code == "UNSUPPORTED"
    assert caught.value.param is not None
    assert caught.value.param.split(".")[0].split("[")[0] == next(iter(refused))


def test_a_call_is_an_item_of_its_own() -> None:
    asked = read_response({"model": "toy", "input": "How is Oslo?", "tools": [TOOL]})
    facts = ShapeFacts("1", 0, "toy", "0" * 64, 1, 3, include_usage=True, scored=False)
    deltas = [Delta(0, Piece(text)) for text in ("Let me look. ", WEATHER_CALL)]
    end = End(0, "stop", None, 2, 2, 2, 0, 0.0, 0, "here", (), None)
    ids = [str(number) for number in range(8)]
    whole = ResponseShape(facts, asked, 8, iter(ids).__next__).whole(deltas, [end])
    shape = ResponseShape(facts, asked, 8, iter(ids).__next__)
    events = [*shape.opening(), *(each for delta in deltas for each in shape.delta(delta))]
    events += [*shape.end(end), *shape.closing([end])]
    assert events[-1]["response"] == whole
    message, call = cast(list[dict[str, Any]], whole["output"])
    assert message["content"][0]["text"] == "Let me look. "
    assert (call["type"], call["name"]) == ("function_call", "weather")
    assert call["arguments"] == '{"city": "Oslo"}'
    assert whole["status"] == "completed"
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    done = [each for each in events if each["type"] == "response.output_item.done"]
    assert [each["item"] for each in done] == whole["output"]
