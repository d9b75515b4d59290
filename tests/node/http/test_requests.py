"""Bodies that cannot be answered name the field at fault; harmless fields are taken."""

import json
import math
from dataclasses import replace
from typing import cast

import pytest

from kakeya import KvStrategy, Speculation
from kakeya_fleet.node.grammars.grammar import Grammar, GrammarKind
from kakeya_fleet.node.http.chat_request import read_chat
from kakeya_fleet.node.http.completion_request import read_completion
from kakeya_fleet.node.http.message_request import read_messages
from kakeya_fleet.node.http.ollama_request import read_ollama_chat
from kakeya_fleet.node.http.refusal import HttpRefusal
from kakeya_fleet.node.http.response_request import read_response

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
TEXT = {"model": "m", "prompt": "hello"}
FUNCTION = {"type": "function", "function": {"name": "f"}}

SHARED = [
    ({"model": None}, "model"),
    ({"model": 3}, "model"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"usage": True}}, "stream_options.usage"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"n": True}, "n"),
    ({"n": 1.5}, "n"),
    ({"stop": ["a"] * 65}, "stop"),
    ({"stop": [""]}, "stop"),
    ({"stop": ""}, "stop"),
    ({"stop": 3}, "stop"),
    ({"seed": 1 << 64}, "seed"),
    ({"seed": 0.5}, "seed"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias.1"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"guided_regex": ""}, "guided_regex"),
    ({"guided_regex": 3}, "guided_regex"),
    ({"guided_json": [1]}, "guided_json"),
    ({"guided_choice": []}, "guided_choice"),
    ({"guided_choice": ["a", ""]}, "guided_choice"),
    ({"guided_choice": "ab"}, "guided_choice"),
    ({"guided_grammar": "start: A\nA: ~/a/"}, "guided_grammar"),
    ({"guided_json_object": True}, "guided_json_object"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_regex"),
    ({"structured_outputs": "a"}, "structured_outputs"),
    ({"structured_outputs": {"xml": "a"}}, "structured_outputs.xml"),
    ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.regex"),
    ({"structured_outputs": {"grammar": "a" * 70_000}}, "structured_outputs.grammar"),
    ({"temprature": 1}, "temprature"),
    ({"kakeya": "full"}, "kakeya"),
    ({"kakeya": {"window": 3}}, "kakeya.window"),
    ({"kakeya": {"kv_strategy": "paged"}}, "kakeya.kv_strategy"),
    ({"kakeya": {"kv_strategy": "unknown"}}, "kakeya.kv_strategy"),
    ({"kakeya": {"kv_quality_when_short": "some"}}, "kakeya.kv_quality_when_short"),
    ({"kakeya": {"speculation": "fast"}}, "kakeya.speculation"),
    ({"kakeya": {"speculation": {"model": "x"}}}, "kakeya.speculation.model"),
    ({"kakeya": {"window_tokens": 0}}, "kakeya.window_tokens"),
]
OF_CHAT = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [3]}, "messages[0]"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
        "messages[0].content[0].type",
    ),
    ({"logprobs": 3}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]},
        "tools[0].function.strict",
    ),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [FUNCTION], "tool_choice": "some"}, "tool_choice"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "custom"}}, "tool_choice"),
    (
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice",
    ),
    ({"tools": [FUNCTION], "parallel_tool_calls": 0}, "parallel_tool_calls"),
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {}}, "response_format.type"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}}},
        "response_format.json_schema.strict",
    ),
    ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
    ({"tools": [FUNCTION], "response_format": {"type": "json_object"}}, "tools"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"audio": {"voice": "x"}}, "audio"),
    ({"reasoning_effort": "high"}, "reasoning_effort"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
    ({"chat_template_kwargs": 3}, "chat_template_kwargs"),
]
OF_TEXT = [
    ({"prompt": None}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": [[1], []]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [True]}, "prompt"),
    ({"prompt": ["a"] * 9, "n": 2}, "n"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"suffix": 3}, "suffix"),
    ({"suffix": "x", "prompt": [1]}, "suffix"),
    ({"best_of": 3}, "best_of"),
    ({"echo": True, "logprobs": 1}, "echo"),
    ({"messages": []}, "messages"),
]


@pytest.mark.parametrize(("wrong", "name"), SHARED + OF_CHAT)
def test_a_chat_that_is_wrong(wrong: dict[str, object], name: str) -> None:
    with pytest.raises(HttpRefusal) as caught:
        read_chat({**CHAT, **wrong})
    assert (caught.value.status, caught.value.parameter) == (400, name)


@pytest.mark.parametrize(("wrong", "name"), SHARED + OF_TEXT)
def test_a_completion_that_is_wrong(wrong: dict[str, object], name: str) -> None:
    with pytest.raises(HttpRefusal) as caught:
        read_completion({**TEXT, **wrong})
    assert (caught.value.status, caught.value.parameter) == (400, name)


def test_a_mistyped_field_is_told_its_neighbour() -> None:
    with pytest.raises(HttpRefusal, match="did you mean 'temperature'"):
        read_chat({**CHAT, "temprature": 1})


def test_fields_that_change_no_token_are_taken() -> None:
    harmless = {
        "user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto",
        "safety_identifier": "x", "prompt_cache_key": "y", "parallel_tool_calls": True,
        "presence_penalty": 0, "frequency_penalty": 0.0, "response_format": {"type": "text"},
        "modalities": ["text"], "stop": None, "seed": None, "tools": None, "n": None,
    }  # fmt: skip
    plain, taken = read_chat(CHAT), read_chat({**CHAT, **harmless})
    ignored = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
    assert taken.options.ignored == ignored
    assert replace(taken, options=replace(taken.options, ignored=())) == plain
    assert plain.options.sampling.temperature == 1.0
    assert plain.options.session.kv_strategy is KvStrategy.FULL


def test_what_was_asked_for_is_read() -> None:
    request = read_completion(
        {
            **TEXT, "n": 2, "stop": "end", "seed": -1, "top_k": -1, "logprobs": 0,
            "logit_bias": {"5": -100, "6": 1},
            "kakeya": {"speculation": {"proposer_model": "ngram", "block_size": 3}},
        }
    )  # fmt: skip
    sampling = request.options.sampling
    assert sampling.logit_bias == {5: -math.inf, 6: 1.0}
    assert sampling.top_k == 0
    assert sampling.top_log_probabilities == 0
    # Each choice draws from a seed of its own; they go round at the end.
    assert [sampling.of_choice(index)["seed"] for index in range(2)] == [(1 << 64) - 1, 0]
    assert request.options.session.speculation == Speculation("ngram", "", 3)
    assert request.options.stops == ("end",)


def test_messages_as_templates_take_them() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    request = read_chat(
        {
            "model": "m",
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": "be "},
                                                  {"type": "text", "text": "kind"}]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": "2"},
            ],
        }
    )  # fmt: skip
    system, said, result = request.messages
    assert system == {"role": "system", "content": "be kind"}
    (told,) = cast("list[dict[str, object]]", said["tool_calls"])
    assert told["function"] == {"name": "f", "arguments": {"a": 1}}
    assert result == {"role": "tool", "tool_call_id": "c", "content": "2"}


OBJECT = Grammar(GrammarKind.JSON_SCHEMA, '{"type":"object"}')
NAMED = {"properties": {"é": {"type": "string"}}}
NAMED_TEXT = '{"properties":{"é":{"type":"string"}}}'


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"guided_regex": "a+"}, "regex", "a+"),
        ({"guided_grammar": "start: A"}, "lark", "start: A"),
        ({"guided_json": NAMED}, "json_schema", NAMED_TEXT),
        ({"guided_json": NAMED_TEXT}, "json_schema", NAMED_TEXT),
        ({"guided_json": True}, "json_schema", "true"),
        ({"guided_choice": ["yes, it is", "a|b", "é"]}, "regex", r"yes, it is|a\x{7c}b|\x{e9}"),
        ({"structured_outputs": {"regex": "a+"}}, "regex", "a+"),
        ({"structured_outputs": {"json": NAMED}}, "json_schema", NAMED_TEXT),
        ({"structured_outputs": {"json_object": True}}, "json_schema", OBJECT.text),
        ({"structured_outputs": {"choice": ["a"]}}, "regex", "a"),
    ],
)
def test_what_an_answer_is_held_to_in_the_names_of_vllm(
    given: dict[str, object], kind: str, text: str
) -> None:
    for options in (
        read_chat({**CHAT, **given}).options,
        read_completion({**TEXT, **given}).options,
    ):
        assert options.sampling.grammar == Grammar(GrammarKind(kind), text)
        assert options.sampling.of_choice(0)[kind] == text


def test_what_an_answer_is_held_to_in_the_names_of_openai() -> None:
    def held_to(form: dict[str, object] | None) -> Grammar | None:
        return read_chat({**CHAT, "response_format": form}).options.sampling.grammar

    inner = {"name": "n", "description": "d", "schema": NAMED, "strict": True}
    assert held_to({"type": "json_schema", "json_schema": inner}) == Grammar(
        GrammarKind.JSON_SCHEMA, NAMED_TEXT
    )
    assert held_to({"type": "json_object"}) == OBJECT
    assert held_to({"type": "text"}) is None
    assert held_to(None) is None
    # Plain text has no form of its own there, as with OpenAI.
    with pytest.raises(HttpRefusal):
        read_completion({**TEXT, "response_format": {"type": "json_object"}})


def test_tools_that_may_not_be_called_stand_beside_a_form() -> None:
    form = {"tools": [FUNCTION], "tool_choice": "none", "response_format": {"type": "json_object"}}
    assert read_chat({**CHAT, **form}).options.sampling.grammar == OBJECT


def test_penalties_are_read() -> None:
    sampling = read_chat(
        {**CHAT, "frequency_penalty": 2, "presence_penalty": -0.5}
    ).options.sampling
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (2.0, -0.5)
    assert sampling.of_choice(1)["frequency_penalty"] == 2.0
    assert sampling.of_choice(1)["presence_penalty"] == -0.5


def test_a_grammar_that_is_too_large_says_so() -> None:
    with pytest.raises(HttpRefusal) as caught:
        read_chat({**CHAT, "guided_regex": "a" * 70_000})
    assert (caught.value.reason, caught.value.parameter) == ("GRAMMAR_REFUSED", "guided_regex")


MESSAGES: dict[str, object] = {**CHAT, "max_tokens": 4}
RESPONSE: dict[str, object] = {"model": "m", "input": "hello"}


def test_a_tool_is_shown_to_a_model_alike_whatever_the_dialect() -> None:
    """Letter by letter: a template writes it as it comes."""
    schema = {"type": "object"}
    named = {"name": "f", "description": "It does."}
    function = {**named, "parameters": schema}
    asked = {"tools": [{"type": "function", "function": function}]}
    expected = json.dumps(read_chat({**CHAT, **asked}).tools)
    assert json.dumps(read_ollama_chat({**CHAT, **asked}).tools) == expected
    read = read_response({**RESPONSE, "tools": [{"type": "function", **function}]})
    assert json.dumps(read.tools) == expected
    read = read_messages({**MESSAGES, "tools": [{"input_schema": schema, **named}]})
    assert json.dumps(read.tools) == expected


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}, 3]}]},
            "messages[0].content[1]",
        ),
        ({"system": 3}, "system"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"stop_sequences": ["x"] * 65}, "stop_sequences"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"tool_choice": {"type": "any", "name": "f"}}, "tool_choice"),
        ({"temprature": 1}, "temprature"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
    ],
)
def test_a_message_of_anthropics_that_is_wrong(wrong: dict[str, object], name: str) -> None:
    with pytest.raises(HttpRefusal) as caught:
        read_messages({**MESSAGES, **wrong})
    assert (caught.value.status, caught.value.parameter) == (400, name)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"input": []}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
        ({"conversation": "c"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"tools": [{"type": "function", "name": "f", "strict": 1}]}, "tools[0].strict"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"stop": "x"}, "stop"),
    ],
)
def test_a_response_that_is_wrong(wrong: dict[str, object], name: str) -> None:
    with pytest.raises(HttpRefusal) as caught:
        read_response({**RESPONSE, **wrong})
    assert (caught.value.status, caught.value.parameter) == (400, name)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"options": {"temperature": 3}}, "options.temperature"),
        ({"options": {"num_predict": -3}}, "options.num_predict"),
        ({"options": {"num_cxt": 1}}, "options.num_cxt"),
        ({"options": {"tfs_z": 0.5}}, "options.tfs_z"),
        ({"options": 3}, "options"),
        ({"format": "xml"}, "format"),
        ({"format": {"type": "object"}, "tools": [FUNCTION]}, "tools"),
        ({"think": True}, "think"),
        ({"stream": 3}, "stream"),
        ({"messages": [{"role": "user", "content": "x", "images": ["x"]}]}, "messages[0].images"),
        ({"messages": [{"role": "assistant", "tool_calls": [3]}]}, "messages[0].tool_calls[0]"),
    ],
)
def test_a_chat_of_ollamas_that_is_wrong(wrong: dict[str, object], name: str) -> None:
    with pytest.raises(HttpRefusal) as caught:
        read_ollama_chat({**CHAT, **wrong})
    assert (caught.value.status, caught.value.parameter) == (400, name)


def test_fields_that_change_no_token_are_named_and_others_are_refused() -> None:
    asked = read_chat({**CHAT, "ttl": 3, "metadata": {}, "user": "x"})
    assert asked.options.ignored == ("ttl", "metadata", "user")
    assert read_completion({**TEXT, "user": "x"}).options.ignored == ("user",)
    assert read_messages({**MESSAGES, "cache_control": {}}).options.ignored == ("cache_control",)
    with pytest.raises(HttpRefusal, match="transforms"):
        read_chat({**CHAT, "transforms": ["middle-out"]})
