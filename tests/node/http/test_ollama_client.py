"""The official client of Ollama against a real fleet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kakeya_fleet.node.http.answer_text import Piece
from kakeya_fleet.node.http.answering import Delta, End
from kakeya_fleet.node.http.ollama_request import read_ollama_chat
from kakeya_fleet.node.http.ollama_shape import OllamaShape, _message
from kakeya_fleet.node.http.refusal import HttpRefusal
from kakeya_fleet.node.http.shape_facts import ShapeFacts
from tests.node.http.clients import ollama, openai
from tests.node.http.conftest import WEATHER_CALL, Ask, HttpFleet, OpenAiOf, http_of

OPTIONS: dict[str, Any] = {"temperature": 0, "num_predict": 8}


@pytest.fixture
def client(fleet: HttpFleet) -> Iterator[ollama.Client]:
    made = ollama.Client(host=f"http://{http_of(fleet.one)}", timeout=60)
    yield made
    made._client.close()


@pytest.fixture
def chat(fleet: HttpFleet, openai_of: OpenAiOf) -> openai.OpenAI:
    return openai_of(fleet.one)


def test_a_chat_is_the_chats_answer(client: ollama.Client, chat: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Say something of lakes"}]
    answer = client.chat(model="toy:latest", messages=messages, options=OPTIONS)
    expected = chat.chat.completions.create(
        model="toy", messages=messages, max_tokens=8, temperature=0
    )
    assert answer.message.content == expected.choices[0].message.content
    assert (answer.done, answer.done_reason, answer.eval_count) == (True, "length", 8)
    assert expected.usage is not None
    assert answer.prompt_eval_count == expected.usage.prompt_tokens
    assert answer.created_at is not None
    parts = list(client.chat(model="toy", messages=messages, options=OPTIONS, stream=True))
    assert "".join(part.message.content or "" for part in parts) == answer.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]


def test_a_prompt_is_a_chat_of_one_message_or_raw_text(
    client: ollama.Client, chat: openai.OpenAI
) -> None:
    answer = client.generate(model="toy", prompt="Hello", system="Be brief.", options=OPTIONS)
    expected = chat.chat.completions.create(
        model="toy",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
        ],
        max_tokens=8,
        temperature=0,
    )
    assert answer.response == expected.choices[0].message.content
    raw = client.generate(model="toy", prompt="Hello", raw=True, options=OPTIONS)
    text = chat.completions.create(model="toy", prompt="Hello", max_tokens=8, temperature=0)
    assert raw.response == text.choices[0].text
    parts = client.generate(model="toy", prompt="Hello", raw=True, options=OPTIONS, stream=True)
    assert "".join(part.response or "" for part in parts) == raw.response
    assert client.generate(model="toy", prompt="").done_reason == "load"


def test_models_and_their_cards(client: ollama.Client, ask: Ask, fleet: HttpFleet) -> None:
    listed = client.list().models
    assert {model.model for model in listed} == {"tiny", "toy"}
    assert {model.model for model in client.ps().models} == {"tiny", "toy"}
    shown = client.show("toy")
    assert shown.capabilities == ["completion", "tools"]
    assert shown.modelinfo is not None
    assert 2048 in shown.modelinfo.values()
    assert client.show("tiny").capabilities == ["completion"]
    assert ask(fleet.one, "/api/version").json["version"]


def test_what_cannot_be_is_refused_with_why(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="fleet load") as caught:
        client.pull("llama3")
    assert caught.value.status_code == 400
    with pytest.raises(ollama.ResponseError, match="fleet unload"):
        client.delete("toy")
    with pytest.raises(ollama.ResponseError, match="no live node serves") as missing:
        client.chat(model="llama3", messages=[{"role": "user", "content": "Hi"}])
    assert missing.value.status_code == 404
    for options in ({"mirostat": 1}, {"repeat_penalty": 1.1, "repeat_last_n": 64}):
        with pytest.raises(ollama.ResponseError, match="not supported"):
            client.generate(model="toy", prompt="Hi", options=options)


ONE_OR_TWO = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("form", "values"),
    [("json", None), (ONE_OR_TWO, (1, 2))],
)
def test_an_answer_is_held_to_a_form(
    client: ollama.Client, form: Any, values: tuple[int, ...] | None
) -> None:
    answer = client.generate(
        model="toy",
        prompt="Hi",
        format=form,
        options={"num_predict": 200, "frequency_penalty": 1.0},
    )
    if answer.done_reason != "length":
        said = json.loads(answer.response or "")
        assert isinstance(said, dict)
        assert values is None or said["n"] in values


def test_options_of_loading_are_read_past_and_named(ask: Ask, fleet: HttpFleet) -> None:
    body = {
        "model": "toy",
        "prompt": "Hi",
        "stream": False,
        "keep_alive": "5m",
        "options": {**OPTIONS, "num_ctx": 4096, "num_thread": 4},
    }
    answer = ask(fleet.one, "/api/generate", body)
    assert answer.status == 200
    assert answer.headers["X-Ignored-Fields"] == "keep_alive, options.num_ctx, options.num_thread"
    assert answer.headers["Content-Type"].startswith("application/json")
    streamed = ask(fleet.one, "/api/generate", {**body, "stream": True})
    assert streamed.headers["Content-Type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in streamed.body.splitlines()]
    assert "".join(line["response"] for line in lines) == answer.json["response"]
    with pytest.raises(HttpRefusal, match="did you mean 'temperature'"):
        read_ollama_chat({"model": "m", "messages": [{}], "options": {"temprature": 1}})


def test_calls_of_tools_are_objects_in_both_directions() -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {}}}
    call = {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    asked = read_ollama_chat(
        {
            "model": "toy",
            "messages": [
                {"role": "user", "content": "How is Oslo?"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "content": "Rain", "tool_name": "weather"},
            ],
            "tools": [tool],
        }
    )
    assert asked.options.stream
    assert asked.messages[1]["tool_calls"] == [{"type": "function", **call}]
    facts = ShapeFacts("1", 0, "toy", "0" * 64, 1, 3, include_usage=True, scored=False)
    end = End(0, "stop", None, 2, 2, 2, 0, 0.0, 0, "here", (), None)
    shape = OllamaShape(facts, _message, asked.tool_names)
    assert shape.delta(Delta(0, Piece(WEATHER_CALL))) == []
    said, ended = shape.end(end)
    assert said["message"] == {"role": "assistant", "content": "", "tool_calls": [call]}
    assert (said["done"], ended["done"], ended["done_reason"]) == (False, True, "stop")
    (silent,) = shape.waiting()
    assert (silent["message"], silent["done"]) == ({"role": "assistant", "content": ""}, False)
