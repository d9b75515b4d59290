"""What answers are held to, checked before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from kakeya.errors import BadRequest
from kakeya.grammars import MAX_GRAMMAR_BYTES, grammar
from kakeya.options import GenerateOptions
from kakeya.v1 import runtime_pb2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"json_schema": None, "regex": None, "lark": None, "json_object": False}, None),
        ({"json_object": True}, runtime_pb2.Grammar(json_object=True)),
        ({"regex": "a+"}, runtime_pb2.Grammar(regex="a+")),
        ({"lark": "start: A"}, runtime_pb2.Grammar(lark="start: A")),
        ({"json_schema": '{ "a": 1 }'}, runtime_pb2.Grammar(json_schema='{ "a": 1 }')),
        # As JSON.stringify has it, so that both clients ask for the same.
        (
            {"json_schema": {"b": [1, 2.5], "a": "é"}},
            runtime_pb2.Grammar(json_schema='{"b":[1,2.5],"a":"é"}'),
        ),
        ({"json_schema": {}}, runtime_pb2.Grammar(json_schema="{}")),
    ],
)
def test_what_is_given_is_sent(
    options: GenerateOptions, expected: runtime_pb2.Grammar | None
) -> None:
    assert grammar(options) == expected


RECURSIVE: dict[str, Any] = {}
RECURSIVE["a"] = RECURSIVE


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"regex": "a", "lark": "b"}, "lark", "one of regex and lark"),
        ({"json_object": True, "json_schema": {}}, "json_object", "one of json_schema"),
        ({"regex": ""}, "regex", "not empty"),
        ({"lark": 3}, "lark", "a text"),
        ({"json_schema": [1]}, "json_schema", "a text"),
        ({"json_schema": {"a": float("nan")}}, "json_schema", "as JSON"),
        ({"json_schema": {"a": object()}}, "json_schema", "as JSON"),
        ({"json_schema": RECURSIVE}, "json_schema", "as JSON"),
        ({"regex": "\ud800"}, "regex", "half a character"),
        ({"regex": "é" * (MAX_GRAMMAR_BYTES // 2 + 1)}, "regex", "65,536 bytes"),
    ],
)
def test_what_cannot_be_sent_is_named(options: Any, field: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words) as caught:
        grammar(options)
    assert caught.value.metadata["field"] == field
