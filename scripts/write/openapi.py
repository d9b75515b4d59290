"""Writes docs/openapi.json, the description of a node's HTTP, from the bounds that it reads by.

python -m scripts.write.openapi
python -m scripts.write.openapi --check    # exit status 1 when the file is another
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kakeya_fleet.node.http.chat_request import HARMLESS, MAX_MESSAGES, MAX_TOOLS
from kakeya_fleet.node.http.chat_request import KNOWN as CHAT_FIELDS
from kakeya_fleet.node.http.completion_request import KNOWN as COMPLETION_FIELDS
from kakeya_fleet.node.http.request_options import (
    MAX_CHOICES,
    MAX_STOPS,
    MAX_TOKENS,
    MAX_TOP_LOG_PROBABILITIES,
    SEED_RANGE,
)
from scripts.write.openapi_apis import (
    ANTHROPIC_ERROR,
    ANTHROPIC_REFUSED,
    OLLAMA_ERROR,
    OLLAMA_REFUSED,
    other_apis,
)
from scripts.write.openapi_held import RESPONSE_FORMAT, STRUCTURED
from scripts.write.openapi_parts import (
    ANYTHING,
    BOOLEAN,
    IDS,
    INT32_MOST,
    KAKEYA,
    Schema,
    an_object,
    asking,
    body_of,
    check_fields,
    number,
    one_of,
    operation,
    text_of,
    whole,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "openapi.json"
SHARED: Mapping[str, Schema] = {
    "model": {"type": "string", "minLength": 1},
    "stream": BOOLEAN,
    "stream_options": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"include_usage": BOOLEAN, "include_obfuscation": ANYTHING},
    },
    "return_progress": BOOLEAN,
    "n": whole(1, MAX_CHOICES),
    "stop": {
        "oneOf": [
            {"type": "string", "minLength": 1},
            {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "maxItems": MAX_STOPS,
            },
        ]
    },
    "seed": whole(-(1 << 63), SEED_RANGE - 1),
    "temperature": number(0.0, 2.0),
    "top_p": number(0.0, 1.0),
    "top_k": whole(-1, INT32_MOST),
    "min_p": number(0.0, 1.0),
    "repetition_penalty": number(1 / 64, 64.0),
    "logit_bias": {
        "type": "object",
        "propertyNames": {"pattern": "^[0-9]{1,9}$"},
        "additionalProperties": number(-100.0, 100.0),
    },
    "max_tokens": whole(1, MAX_TOKENS),
    "presence_penalty": number(-2.0, 2.0),
    "frequency_penalty": number(-2.0, 2.0),
    **{f"guided_{name}": schema for name, schema in STRUCTURED.items() if name != "json_object"},
    "structured_outputs": {
        "type": "object",
        "additionalProperties": False,
        "maxProperties": 1,
        "properties": dict(STRUCTURED),
    },
    "kakeya": KAKEYA,
    "user": ANYTHING,
}
COMPLETION: Mapping[str, Schema] = {
    **SHARED,
    "prompt": {
        "oneOf": [
            {"type": "string"},
            {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": MAX_CHOICES,
            },
            IDS,
            {"type": "array", "items": IDS, "minItems": 1, "maxItems": MAX_CHOICES},
        ]
    },
    "logprobs": whole(0, MAX_TOP_LOG_PROBABILITIES),
    "echo": BOOLEAN,
    "suffix": {"type": "string"},
    "best_of": one_of(1),
}
CHAT: Mapping[str, Schema] = {
    **SHARED,
    "messages": {
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_MESSAGES,
        "items": {
            "type": "object",
            "required": ["role", "content"],
            "properties": {
                "role": one_of("system", "developer", "user", "assistant"),
                "content": {"type": "string"},
            },
        },
    },
    "logprobs": BOOLEAN,
    "top_logprobs": whole(0, MAX_TOP_LOG_PROBABILITIES),
    "max_completion_tokens": whole(1, MAX_TOKENS),
    "tools": {
        "type": "array",
        "maxItems": MAX_TOOLS,
        "items": {
            "type": "object",
            "required": ["type", "function"],
            "properties": {
                "type": one_of("function"),
                "function": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": {"type": "string", "minLength": 1},
                        "description": {"type": "string"},
                        "parameters": {"type": "object"},
                        "strict": BOOLEAN,
                    },
                },
            },
        },
    },
    "tool_choice": {
        "oneOf": [
            one_of("auto", "none", "required"),
            an_object({"type": one_of("function"), "function": an_object({"name": text_of()})}),
        ]
    },
    "parallel_tool_calls": BOOLEAN,
    "response_format": RESPONSE_FORMAT,
    "chat_template_kwargs": {"type": "object"},
    "modalities": one_of(["text"]),
    "functions": one_of([]),
    "function_call": one_of("none"),
}
REFUSED = {"audio", "web_search_options", "reasoning_effort", "verbosity"}
"""Of OpenAI's: no value of them is taken."""

ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
MODEL: Schema = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by"],
    "properties": {
        "id": {"type": "string"},
        "object": one_of("model"),
        "created": {"type": "integer"},
        "owned_by": {"type": "string"},
    },
}


def description() -> dict[str, Any]:
    """The whole of it, OpenAPI 3.1."""
    chat = {**CHAT, **dict.fromkeys(sorted(HARMLESS), ANYTHING)}
    check_fields("chat", set(chat) | REFUSED, set(CHAT_FIELDS))
    check_fields("completions", set(COMPLETION), set(COMPLETION_FIELDS))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kakeya Fleet: a node's HTTP",
            "version": "v1",
            "description": "The shapes of OpenAI, Anthropic and Ollama, answered by any node: "
            "docs/http.md. Made by "
            "python -m scripts.write.openapi.",
        },
        "components": {
            "responses": {
                "Refused": _refused(ERROR),
                ANTHROPIC_REFUSED: _refused(ANTHROPIC_ERROR),
                OLLAMA_REFUSED: _refused(OLLAMA_ERROR),
            }
        },
        "paths": {
            "/v1/models": {
                "get": _operation("Models of the fleet", _list_of_models()),
            },
            "/v1/models/{model}": {
                "parameters": [
                    {
                        "name": "model",
                        "in": "path",
                        "required": True,
                        "schema": {"type": "string", "minLength": 1},
                    }
                ],
                "get": _operation("One of them", MODEL),
            },
            "/v1/completions": {
                "post": _asking("Plain text goes on", COMPLETION, ["model", "prompt"])
            },
            "/v1/chat/completions": {
                "post": _asking("A conversation goes on", chat, ["model", "messages"])
            },
            **other_apis(),
        },
    }


def _refused(schema: Schema) -> dict[str, Any]:
    return {
        "description": "Refused; `code` is one of docs/troubleshooting.md.",
        "content": {"application/json": {"schema": schema}},
    }


def _list_of_models() -> Schema:
    return {
        "type": "object",
        "required": ["object", "data"],
        "properties": {"object": one_of("list"), "data": {"type": "array", "items": MODEL}},
    }


def _operation(summary: str, answer: Schema) -> dict[str, Any]:
    return operation(summary, answer, refused="Refused")


def _asking(summary: str, fields: Mapping[str, Schema], required: list[str]) -> dict[str, Any]:
    answer = {
        "type": "object",
        "required": ["id", "object", "created", "model", "choices", "usage"],
        "properties": {"choices": {"type": "array", "minItems": 1}},
    }
    told = operation(summary, answer, refused="Refused", stream="text/event-stream")
    return asking(told, body_of(fields, required))


def text() -> str:
    """As the file has it."""
    return json.dumps(description(), indent=2) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    """Writes the file, or checks it; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args(words).check:
        return int(PAGE.read_text() != text())
    PAGE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
