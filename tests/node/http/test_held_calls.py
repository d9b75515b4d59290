"""Calls of tools that are held: to schemas, to one tool, or to be there at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer

from kakeya.text import TextCodec
from kakeya.tokenizer_folder import read_files
from kakeya_fleet.node.grammars.compiling import compiled
from kakeya_fleet.node.http.chat_request import read_chat
from kakeya_fleet.node.http.held_calls import CLOSING, OPENING, held_grammar
from kakeya_fleet.node.http.refusal import HttpRefusal
from tests.node.http.clients import openai
from tests.node.http.conftest import Ask, HttpFleet, OpenAiOf
from tests.sdk.test_chat_families import FAMILIES, files_of

llguidance = pytest.importorskip("llguidance", reason="llguidance is not installed")

CITY = {
    "type": "object",
    "title": "Arguments",
    "properties": {
        "city": {"enum": ["Oslo", "Bergen ~"], "description": "Where: a city."},
        "description": {"type": "integer"},
    },
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": CITY, "strict": True},
}
NOW: Any = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
BODY = {"model": "toy", "messages": [{"role": "user", "content": "?"}], "tools": [WEATHER, NOW]}
OSLO = '{"name": "weather", "arguments": {"city": "Oslo"}}'
ANY = '{"name": "now", "arguments": {"a": [1, null]}}'


def call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


@pytest.fixture(scope="module")
def codec(toy: Path) -> TextCodec:
    return TextCodec.from_folder(str(toy))


Holds = Callable[[str], bool]


@pytest.fixture(scope="module")
def holds(codec: TextCodec, toy: Path) -> Callable[..., Holds]:
    """holds(**fields)(text): whether text may be a whole answer to a body with these fields."""
    tokenizer = (toy / "tokenizer.json").read_text()
    vocabulary = llguidance.LLTokenizer(tokenizer, n_vocab=300, eos_token=256)

    def of(**fields: Any) -> Holds:
        request = read_chat({**BODY, **fields})
        assert request.held is not None
        grammar = held_grammar(codec, "toy", request.tools, request.held)

        def fits(text: str) -> bool:
            matcher = compiled(grammar, vocabulary)
            # A token a byte: that of the whole call is none of them.
            ids = [token_id for character in text for token_id in codec.encode(character)]
            return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

        return fits

    return of


def test_arguments_of_a_strict_tool_fit_its_schema_and_text_is_free(
    holds: Callable[..., Holds],
) -> None:
    fits = holds()
    for text in (
        "",
        "Is 1 < 2? <tool",
        call(OSLO),
        "I look. " + call(OSLO.replace("Oslo", "Bergen ~")) + "\n" + call(ANY),
        call(OSLO.replace("}}", ', "description": 3}}')),
    ):
        assert fits(text), text
    for text in (
        call(OSLO.replace("Oslo", "Rome")),
        call(OSLO.replace("}}", ', "more": 1}}')),
        call(OSLO.replace("weather", "other")),
        call(ANY.replace('{"a": [1, null]}', "3")),
        call(OSLO) + " and text",
        call(OSLO)[:-1],
        "<tool_call> is a word",
    ):
        assert not fits(text), text


@pytest.mark.parametrize("special", [False, True])
def test_marks_that_are_tokens_of_their_own_are_those_that_a_model_says(
    toy: Path, tmp_path: Path, special: bool
) -> None:
    folder = shutil.copytree(toy, tmp_path / "marked")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    marks = [AddedToken(mark, special=special, normalized=False) for mark in (OPENING, CLOSING)]
    (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(marks)
    tokenizer.save(str(folder / "tokenizer.json"))
    codec = TextCodec.from_folder(str(folder))
    vocabulary = llguidance.LLTokenizer(tokenizer.to_str(), n_vocab=300, eos_token=256)
    request = read_chat(BODY)
    assert request.held is not None
    grammar = held_grammar(codec, "marked", request.tools, request.held)
    for text, fits in (("I look. " + call(ANY), True), (call(ANY.replace("now", "no")), False)):
        ids = codec.encode(text)
        assert tokenizer.token_to_id(OPENING) in ids
        assert (compiled(grammar, vocabulary).try_consume_tokens(ids) == len(ids)) is fits


def test_a_choice_of_tool_forces_a_call(holds: Callable[..., Holds]) -> None:
    required = holds(tool_choice="required")
    named = holds(tool_choice={"type": "function", "function": {"name": "now"}})
    assert required(call(OSLO))
    assert required(call(ANY) + call(OSLO))
    assert named(call(ANY))
    for fits, text in ((required, "text"), (required, "text " + call(ANY)), (named, call(OSLO))):
        assert not fits(text), text
    assert not named(call(ANY) + call(ANY))
    one = holds(parallel_tool_calls=False)
    assert one("text")
    assert one("text " + call(ANY))
    assert not one(call(ANY) + call(ANY))


def test_a_template_that_writes_calls_otherwise_is_refused_by_name(
    toy: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(toy, tmp_path / "other")
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace("<tool_call>", "[TOOL_CALLS]"))
    other = TextCodec.from_folder(str(folder))
    for fields, parameter in (
        ({}, "tools[0].function.strict"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [NOW], "parallel_tool_calls": False}, "parallel_tool_calls"),
    ):
        request = read_chat({**BODY, **fields})
        assert request.held is not None
        with pytest.raises(HttpRefusal, match="cannot be held") as caught:
            held_grammar(other, "other", request.tools, request.held)
        assert (caught.value.reason, caught.value.parameter) == ("UNSUPPORTED", parameter)


def test_of_the_families_formats_that_of_qwen_3_can_be_held() -> None:
    request = read_chat(BODY)
    assert request.held is not None
    for name, family in FAMILIES.items():
        codec = TextCodec(read_files(files_of(family), name))
        if name == "qwen3":
            assert OPENING in held_grammar(codec, name, request.tools, request.held).text
            continue
        with pytest.raises(HttpRefusal, match="cannot be held"):
            held_grammar(codec, name, request.tools, request.held)


def test_a_schema_beyond_the_bounds_is_refused(codec: TextCodec) -> None:
    deep: dict[str, Any] = {}
    for _ in range(700):
        deep = {"items": deep}
    wide = {"properties": {f"p{number}": {"type": "integer"} for number in range(300)}}
    for parameters, reason in ((deep, "BAD_REQUEST"), (wide, "GRAMMAR_REFUSED")):
        function = {"name": "f", "parameters": parameters, "strict": True}
        request = read_chat({**BODY, "tools": [{"type": "function", "function": function}]})
        assert request.held is not None
        with pytest.raises(HttpRefusal) as caught:
            held_grammar(codec, "toy", request.tools, request.held)
        assert (caught.value.reason, caught.value.parameter) == (reason, "tools[0].function.strict")


def test_what_nothing_is_held_to_has_no_grammar() -> None:
    free = {**BODY, "tools": [NOW]}
    assert read_chat(free).held is None
    assert read_chat({**free, "tool_choice": "auto", "parallel_tool_calls": True}).held is None
    assert read_chat({**BODY, "tool_choice": "none"}).tools == ()
    assert read_chat({**BODY, "tools": [], "parallel_tool_calls": False}).held is None


def test_a_model_that_says_anything_calls_as_it_is_held(
    fleet: HttpFleet, openai_of: OpenAiOf
) -> None:
    client = openai_of(fleet.gate)
    asked: dict[str, Any] = {**BODY, "tools": [WEATHER], "tool_choice": "required", "seed": 4}
    asked |= {"parallel_tool_calls": False, "max_tokens": 200}
    answer = client.chat.completions.create(**asked)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    (made,) = choice.message.tool_calls or []
    assert made.type == "function"
    assert json.loads(made.function.arguments)["city"] in ("Oslo", "Bergen ~")
    told = [
        each.function.arguments or ""
        for chunk in client.chat.completions.create(**asked, stream=True)
        for each in chunk.choices[0].delta.tool_calls or []
        if each.function is not None
    ]
    assert isinstance(json.loads("".join(told)), dict)
    none = {"name": "f", "parameters": {"properties": {"a": {"not": {}}}}, "strict": True}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**asked, "tools": [{**WEATHER, "function": none}]})
    assert caught.value.code == "GRAMMAR_REFUSED"
    with pytest.raises(openai.BadRequestError, match="is no call"):
        client.chat.completions.create(**asked, response_format={"type": "json_object"})


def test_the_other_apis_hold_calls_by_their_own_words(
    fleet: HttpFleet, openai_of: OpenAiOf, ask: Ask
) -> None:
    function: Any = {"type": "function", **WEATHER["function"]}
    response = openai_of(fleet.gate).responses.create(
        model="toy",
        input="How is Oslo?",
        tools=[function],
        tool_choice={"type": "function", "name": "weather"},
        max_output_tokens=200,
        temperature=0,
    )
    (made,) = [item for item in response.output if item.type == "function_call"]
    assert json.loads(made.arguments)["city"] in ("Oslo", "Bergen ~")
    assert (response.tool_choice, response.parallel_tool_calls) == ("required", False)
    assert [tool.strict for tool in response.tools if tool.type == "function"] == [True]
    # As the client of Anthropic asks, whose import takes seconds of a processor.
    message = ask(
        fleet.gate,
        "/v1/messages",
        {
            "model": "toy",
            "max_tokens": 200,
            "messages": [{"role": "user", "content": "How is Oslo?"}],
            "tools": [{"name": "weather", "input_schema": CITY, "strict": True}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "temperature": 0,
        },
    ).json
    assert message["stop_reason"] == "tool_use"
    (block,) = message["content"]
    assert block["type"] == "tool_use"
    assert block["input"]["city"] in ("Oslo", "Bergen ~")
