"""Answers held to a form, asked for by the official client of OpenAI."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from tokenizers import pre_tokenizers

from tests.node.http.clients import openai
from tests.node.http.conftest import Ask, HttpFleet, OpenAiOf

CHAT: Any = [{"role": "user", "content": "Describe a person."}]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORM: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
OFF: Any = {"kakeya": {"speculation": "off"}}
NGRAM: Any = {"kakeya": {"speculation": {"proposer_model": "ngram", "block_size": 6}}}


@pytest.fixture(params=["one", "gate"])
def client(request: pytest.FixtureRequest, fleet: HttpFleet, openai_of: OpenAiOf) -> openai.OpenAI:
    """Of the node that serves the models, and of one that serves none."""
    return openai_of(getattr(fleet, request.param))


def is_person(text: str | None) -> bool:
    person = json.loads(text or "")
    return (
        sorted(person) == ["age", "name"]
        and 0 < len(person["name"]) <= 8
        and 0 <= person["age"] <= 150
    )


def test_a_schema_holds_every_answer_and_its_stream(client: openai.OpenAI) -> None:
    asked: Any = {"model": "toy", "messages": CHAT, "response_format": FORM, "seed": 3, "n": 2}
    whole = client.chat.completions.create(**asked, extra_body=OFF)
    assert [choice.finish_reason for choice in whole.choices] == ["stop", "stop"]
    assert all(is_person(choice.message.content) for choice in whole.choices)
    texts = ["", ""]
    for chunk in client.chat.completions.create(**asked, stream=True, extra_body=NGRAM):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]


Short = Annotated[str, Field(max_length=8)]
Age = Annotated[int, Field(ge=0, le=150)]


class Person(BaseModel):
    name: Short
    tags: list[Short] = Field(max_length=2)
    age: Age | None


def test_the_clients_own_parser_of_structured_answers(client: openai.OpenAI) -> None:
    """It sends the schema of a class as `strict`, and reads an object of it."""
    answered = client.chat.completions.parse(
        model="toy",
        messages=CHAT,
        response_format=Person,
        seed=1,
    )
    (choice,) = answered.choices
    assert choice.finish_reason == "stop"
    assert isinstance(choice.message.parsed, Person)


def test_an_object_of_any_kind(client: openai.OpenAI) -> None:
    answered = client.chat.completions.create(
        model="toy",
        messages=CHAT,
        response_format={"type": "json_object"},
        seed=5,
        max_tokens=400,
        # A random model's texts go on for ever; these have an end.
        logit_bias=liking('"', "}", "]"),
    )
    (choice,) = answered.choices
    assert choice.finish_reason == "stop"
    assert isinstance(json.loads(choice.message.content or ""), dict)


def liking(*characters: str) -> dict[str, int]:
    """Biases of the toy, whose ids are bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return {str(alphabet.index(each)): 8 for each in characters}


HELD: list[tuple[dict[str, Any], set[str]]] = [
    ({"guided_choice": ["yes", "no (really)"]}, {"yes", "no (really)"}),
    ({"guided_regex": "a{3}|b"}, {"aaa", "b"}),
    ({"structured_outputs": {"grammar": 'start: "x" | "y" "z"'}}, {"x", "yz"}),
    ({"structured_outputs": {"choice": ["é|"]}}, {"é|"}),
]


@pytest.mark.parametrize(("held", "texts"), HELD)
def test_plain_text_is_held_too(
    client: openai.OpenAI, held: dict[str, Any], texts: set[str]
) -> None:
    answered = client.completions.create(
        model="toy", prompt="An answer: ", max_tokens=40, seed=2, extra_body=held
    )
    assert answered.choices[0].text in texts
    assert answered.choices[0].finish_reason == "stop"


def test_penalties_are_part_of_the_answer(client: openai.OpenAI) -> None:
    def said(**penalties: Any) -> str:
        answered = client.completions.create(
            model="tiny", prompt="x = 1\ny = 1\n", max_tokens=40, temperature=0, **penalties
        )
        return str(answered.choices[0].text)

    free = said()
    assert said(frequency_penalty=0.0, presence_penalty=0.0) == free
    assert said(frequency_penalty=2.0) != free
    assert said(presence_penalty=2.0) != free


@pytest.mark.parametrize(
    "form",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "objct"}}}},
        {"guided_regex": "(a"},
        {"guided_grammar": "start: unknown"},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_form_that_cannot_be_held_to_is_a_request_that_is_wrong(
    fleet: HttpFleet, ask: Ask, form: dict[str, Any], stream: bool
) -> None:
    body = {"model": "toy", "messages": CHAT, "stream": stream, **form}
    answered = ask(fleet.gate, "/v1/chat/completions", body)
    assert (answered.status, answered.code) == (400, "GRAMMAR_REFUSED")
    assert "\n" not in answered.json["error"]["message"]
