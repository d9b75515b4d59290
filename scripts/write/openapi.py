"""Writes docs/openapi.json, the description of a node's HTTP, from the bounds that it reads by.

python -m scripts.write.openapi
python -m scripts.write.openapi --check    # exit status 1 when the file is another
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kakeya import KvQuality, KvStrategy, RestorerKind
from kakeya_fleet.node.http.answer_grammar import MAX_CHOICES as MOST_TEXTS
from kakeya_fleet.node.http.chat_request import KNOWN as CHAT_FIELDS
from kakeya_fleet.node.http.chat_request import MAX_MESSAGES, MAX_TOOLS
from kakeya_fleet.node.http.completion_request import KNOWN as COMPLETION_FIELDS
from kakeya_fleet.node.http.completion_request import MAX_PROMPT_TOKENS
from kakeya_fleet.node.http.request_options import (
    MAX_CHOICES,
    MAX_STOPS,
    MAX_TOKENS,
    MAX_TOP_LOG_PROBABILITIES,
    SEED_RANGE,
    known_names,
)
from kakeya_fleet.node.rpc.error_reasons import REASONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "openapi.json"
Schema = Mapping[str, Any]

BOOLEAN: Schema = {"type": "boolean"}
ALWAYS: Schema = {"enum": [True]}
NEVER: Schema = {"enum": [False]}
ANYTHING: Schema = {}
INT32_MOST = (1 << 31) - 1
MOST_WINDOW = 1 << 20


def whole(low: int, high: int) -> Schema:
    """A whole number from `low` to `high`."""
    return {"type": "integer", "minimum": low, "maximum": high}


def number(low: float, high: float) -> Schema:
    """A number from `low` to `high`."""
    return {"type": "number", "minimum": low, "maximum": high}


def one_of(*values: object) -> Schema:
    """One of these alone: others would change the answer, and are refused."""
    return {"enum": list(values)}


TEXT: Schema = {"type": "string", "minLength": 1}
JSON_SCHEMA: Schema = {"oneOf": [{"type": "object"}, BOOLEAN, TEXT]}
STRUCTURED: Mapping[str, Schema] = {
    "json": JSON_SCHEMA,
    "json_object": BOOLEAN,
    "regex": TEXT,
    "choice": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": MOST_TEXTS},
    "grammar": TEXT,
}
"""What an answer is held to, in vLLM's names."""
RESPONSE_FORMAT: Schema = {
    "oneOf": [
        {
            "type": "object",
            "required": ["type"],
            "additionalProperties": False,
            "properties": {"type": one_of("text", "json_object")},
        },
        {
            "type": "object",
            "required": ["type", "json_schema"],
            "additionalProperties": False,
            "properties": {
                "type": one_of("json_schema"),
                "json_schema": {
                    "type": "object",
                    "required": ["schema"],
                    "additionalProperties": False,
                    "properties": {
                        "name": ANYTHING,
                        "description": ANYTHING,
                        "schema": JSON_SCHEMA,
                        "strict": BOOLEAN,
                    },
                },
            },
        },
    ]
}
KAKEYA: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "speculation": {
            "oneOf": [
                one_of("auto", "off"),
                {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "proposer_model": {"type": "string"},
                        "node_id": {"type": "string"},
                        "block_size": whole(0, 15),
                    },
                },
            ]
        },
        "kv_strategy": one_of(*known_names(KvStrategy)),
        "sink_tokens": whole(0, MOST_WINDOW),
        "window_tokens": whole(1, MOST_WINDOW),
        "restorer": one_of(*known_names(RestorerKind)),
        "kv_quality": one_of(*known_names(KvQuality)),
        "kv_quality_when_short": one_of(*known_names(KvQuality)),
        "deadline_seconds": number(0.0, 86_400.0),
    },
}
SHARED: Mapping[str, Schema] = {
    "model": {"type": "string", "minLength": 1},
    "stream": BOOLEAN,
    "stream_options": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"include_usage": BOOLEAN, "include_obfuscation": ANYTHING},
    },
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
IDS: Schema = {
    "type": "array",
    "items": whole(0, INT32_MOST),
    "minItems": 1,
    "maxItems": MAX_PROMPT_TOKENS,
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
                        "strict": NEVER,
                    },
                },
            },
        },
    },
    "tool_choice": one_of("auto", "none"),
    "parallel_tool_calls": ALWAYS,
    "response_format": RESPONSE_FORMAT,
    "chat_template_kwargs": {"type": "object"},
    "modalities": one_of(["text"]),
    "functions": one_of([]),
    "function_call": one_of("none"),
}
HARMLESS = (
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prediction",
)
"""Of OpenAI's: what changes no token."""
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
    chat = {**CHAT, **dict.fromkeys(HARMLESS, ANYTHING)}
    _check("chat", set(chat) | REFUSED, set(CHAT_FIELDS))
    _check("completions", set(COMPLETION), set(COMPLETION_FIELDS))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kakeya Fleet: a node's HTTP",
            "version": "v1",
            "description": "OpenAI's shapes, answered by any node: docs/http.md. Made by "
            "python -m scripts.write.openapi.",
        },
        "components": {
            "responses": {
                "Refused": {
                    "description": "Refused; `code` is one of docs/troubleshooting.md.",
                    "content": {"application/json": {"schema": ERROR}},
                }
            }
        },
        "paths": {
            "/v1/models": {
                "get": _operation("Models of the fleet", {"list": _list_of_models()}),
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
                "get": _operation("One of them", {"one": MODEL}),
            },
            "/v1/completions": {
                "post": _asking("Plain text goes on", COMPLETION, ["model", "prompt"])
            },
            "/v1/chat/completions": {
                "post": _asking("A conversation goes on", chat, ["model", "messages"])
            },
        },
    }


def _check(name: str, told: set[str], read: set[str]) -> None:
    """Raises `ValueError` when the description has not the fields that the node reads."""
    if told != read:
        raise ValueError(f"{name}: {sorted(told ^ read)} are only in the description or the code")


def _list_of_models() -> Schema:
    return {
        "type": "object",
        "required": ["object", "data"],
        "properties": {"object": one_of("list"), "data": {"type": "array", "items": MODEL}},
    }


def _operation(summary: str, answers: Mapping[str, Schema]) -> dict[str, Any]:
    (answer,) = answers.values()
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "OK", "content": {"application/json": {"schema": answer}}},
            **_refusals(),
        },
    }


def _asking(summary: str, fields: Mapping[str, Schema], required: Sequence[str]) -> dict[str, Any]:
    answer = {
        "type": "object",
        "required": ["id", "object", "created", "model", "choices", "usage"],
        "properties": {"choices": {"type": "array", "minItems": 1}},
    }
    body = {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": dict(fields),
    }
    operation = _operation(summary, {"answer": answer})
    operation["responses"]["200"]["content"]["text/event-stream"] = {}
    operation["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": body}},
    }
    return operation


def _refusals() -> dict[str, Any]:
    """One for each status that a reason has, and those of HTTP itself; no fault is one of them."""
    statuses = {reason.http_status for reason in REASONS.values()} | {400, 404, 405, 417}
    return {
        str(status): {"$ref": "#/components/responses/Refused"}
        for status in sorted(statuses)
        if HTTPStatus.BAD_REQUEST <= status != HTTPStatus.INTERNAL_SERVER_ERROR
    }


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
