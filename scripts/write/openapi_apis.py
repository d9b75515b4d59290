"""The APIs beside OpenAI's chats, as docs/openapi.json has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kakeya_fleet.node.http import (
    embedding_request,
    message_request,
    ollama_request,
    response_request,
)
from kakeya_fleet.node.http.chat_request import MAX_MESSAGES, MAX_TOOLS
from kakeya_fleet.node.http.ollama_endpoints import REFUSED as REFUSED_OF_OLLAMA
from kakeya_fleet.node.http.request_options import MAX_STOPS, MAX_TOKENS, SEED_RANGE
from scripts.write.openapi_held import OLLAMA_FORMAT, TEXT_FORMAT
from scripts.write.openapi_parts import (
    ALWAYS,
    ANYTHING,
    BOOLEAN,
    IDS,
    INT32_MOST,
    KAKEYA,
    NEVER,
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

ANTHROPIC_REFUSED, OLLAMA_REFUSED = "AnthropicRefused", "OllamaRefused"
STRING: Schema = {"type": "string"}
VECTOR: Schema = {"type": "array", "items": {"type": "number"}}
EVENTS, LINES = "text/event-stream", "application/x-ndjson"
ANTHROPIC_ERROR: Schema = an_object(
    {
        "type": one_of("error"),
        "error": an_object({"type": STRING, "message": STRING, "code": STRING}),
        "request_id": STRING,
    }
)
OLLAMA_ERROR: Schema = an_object({"error": STRING, "code": STRING})
SAMPLING: Mapping[str, Schema] = {"temperature": number(0.0, 2.0), "top_p": number(0.0, 1.0)}
STOPS: Schema = {"type": "array", "items": text_of(), "maxItems": MAX_STOPS}


def _listed(items: Schema, most: int, least: int = 0) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def _or_blocks(kind: str) -> Schema:
    """Text as it is, or in blocks of it."""
    block = an_object({"type": one_of(kind), "text": STRING})
    return {"oneOf": [STRING, {"type": "array", "items": block}]}


RESPONSES: Mapping[str, Schema] = {
    "model": text_of(),
    "input": {
        "oneOf": [
            STRING,
            _listed(
                an_object(
                    {
                        "role": one_of("user", "assistant", "system", "developer"),
                        "content": _or_blocks("input_text"),
                    }
                ),
                MAX_MESSAGES,
                1,
            ),
        ]
    },
    "instructions": STRING,
    "max_output_tokens": whole(1, MAX_TOKENS),
    "stream": BOOLEAN,
    "stream_options": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"include_obfuscation": ANYTHING},
    },
    **SAMPLING,
    "tools": _listed(
        an_object(
            {"type": one_of("function"), "name": text_of()},
            parameters={"type": "object"},
            strict=BOOLEAN,
        ),
        MAX_TOOLS,
    ),
    "tool_choice": {
        "oneOf": [
            one_of("auto", "none", "required"),
            an_object({"type": one_of("function"), "name": text_of()}),
        ]
    },
    "parallel_tool_calls": BOOLEAN,
    "top_logprobs": one_of(0),
    "text": an_object({}, format=TEXT_FORMAT),
    "reasoning": one_of({}),
    "truncation": one_of("disabled"),
    "include": one_of([]),
    "background": NEVER,
    "kakeya": KAKEYA,
    **dict.fromkeys(sorted(response_request.HARMLESS), ANYTHING),
}
NEVER_OF_RESPONSES = {"previous_response_id", "conversation", "prompt", "max_tool_calls"}
"""No value of them is taken."""
MESSAGES: Mapping[str, Schema] = {
    "model": text_of(),
    "max_tokens": whole(1, MAX_TOKENS),
    "messages": _listed(
        an_object({"role": one_of("user", "assistant"), "content": _or_blocks("text")}),
        MAX_MESSAGES,
        1,
    ),
    "system": _or_blocks("text"),
    "stop_sequences": STOPS,
    "stream": BOOLEAN,
    **SAMPLING,
    "top_k": whole(-1, INT32_MOST),
    "tools": _listed(
        an_object(
            {"name": text_of()},
            description=STRING,
            input_schema={"type": "object"},
            strict=BOOLEAN,
        ),
        MAX_TOOLS,
    ),
    "tool_choice": an_object(
        {"type": one_of("auto", "any", "tool", "none")},
        name=text_of(),
        disable_parallel_tool_use=BOOLEAN,
    ),
    "thinking": one_of({"type": "disabled"}),
    "container": one_of({}),
    "context_management": one_of({}),
    "output_config": one_of({}),
    "mcp_servers": one_of([]),
    "kakeya": KAKEYA,
    **dict.fromkeys(sorted(message_request.HARMLESS), ANYTHING),
}
OPTIONS: Mapping[str, Schema] = {
    **SAMPLING,
    "top_k": whole(-1, INT32_MOST),
    "min_p": number(0.0, 1.0),
    "seed": whole(-(1 << 63), SEED_RANGE - 1),
    "stop": STOPS,
    "num_predict": whole(-2, MAX_TOKENS),
    "repeat_penalty": number(1 / 64, 64.0),
    "repeat_last_n": one_of(-1),
    "presence_penalty": number(-2.0, 2.0),
    "frequency_penalty": number(-2.0, 2.0),
    "typical_p": one_of(1),
    "tfs_z": one_of(1),
    "mirostat": one_of(0),
    "mirostat_eta": ANYTHING,
    "mirostat_tau": ANYTHING,
    **dict.fromkeys(sorted(ollama_request.HARMLESS_OPTIONS), ANYTHING),
}
OLLAMA: Mapping[str, Schema] = {
    "model": text_of(),
    "stream": BOOLEAN,
    "options": {"type": "object", "additionalProperties": False, "properties": OPTIONS},
    "format": OLLAMA_FORMAT,
    "think": NEVER,
    "logprobs": NEVER,
    "kakeya": KAKEYA,
    **dict.fromkeys(sorted(ollama_request.HARMLESS), ANYTHING),
}
OLLAMA_CHAT: Mapping[str, Schema] = {
    **OLLAMA,
    "messages": _listed(
        an_object({"role": one_of("system", "user", "assistant"), "content": STRING}),
        MAX_MESSAGES,
        1,
    ),
    "tools": _listed(
        an_object({"type": one_of("function"), "function": an_object({"name": text_of()})}),
        MAX_TOOLS,
    ),
}
OLLAMA_GENERATE: Mapping[str, Schema] = {
    **OLLAMA,
    "name": STRING,
    "prompt": STRING,
    "system": STRING,
    "raw": BOOLEAN,
    "suffix": STRING,
    "template": one_of(""),
    "images": one_of([]),
    "context": one_of([]),
}


EMBEDDINGS: Mapping[str, Schema] = {
    "model": text_of(),
    "input": {
        "oneOf": [
            text_of(),
            _listed(text_of(), embedding_request.MAX_TEXTS, 1),
            IDS,
            _listed(IDS, embedding_request.MAX_TEXTS, 1),
        ]
    },
    "encoding_format": one_of(*embedding_request.FORMATS),
    "dimensions": whole(1, embedding_request.MAX_DIMENSIONS),
    "user": ANYTHING,
}
_OF_MODELS: Mapping[str, Schema] = {
    "model": text_of(),
    "options": {"type": "object", "additionalProperties": False, "properties": OPTIONS},
    **dict.fromkeys(sorted(ollama_request.HARMLESS), ANYTHING),
}
OLLAMA_EMBED: Mapping[str, Schema] = {
    **_OF_MODELS,
    "input": EMBEDDINGS["input"],
    "dimensions": EMBEDDINGS["dimensions"],
    "truncate": BOOLEAN,
}
OLLAMA_EMBEDDINGS: Mapping[str, Schema] = {**_OF_MODELS, "prompt": text_of()}


def other_apis() -> dict[str, Any]:
    """The paths. Raises `ValueError` where they are not what the node reads."""
    for name, told, read in (
        ("responses", set(RESPONSES) | NEVER_OF_RESPONSES, response_request.KNOWN),
        ("messages", set(MESSAGES), message_request.KNOWN),
        ("options of Ollama", set(OPTIONS), ollama_request.OPTIONS),
        ("Ollama's chat", set(OLLAMA_CHAT), ollama_request.CHAT_FIELDS),
        ("Ollama's generate", set(OLLAMA_GENERATE), ollama_request.GENERATE_FIELDS),
        ("embeddings", set(EMBEDDINGS), embedding_request.KNOWN),
        ("Ollama's embed", set(OLLAMA_EMBED), embedding_request.OLLAMA_FIELDS),
        ("Ollama's embeddings", set(OLLAMA_EMBEDDINGS), embedding_request.OLLAMA_OLD_FIELDS),
    ):
        check_fields(name, told, set(read))
    return {**_responses(), **_embeddings(), **_anthropic(), **_ollama()}


def _embeddings() -> dict[str, Any]:
    item = an_object(
        {
            "object": one_of("embedding"),
            "index": whole(0, embedding_request.MAX_TEXTS - 1),
            "embedding": {"oneOf": [VECTOR, STRING]},
        }
    )
    answer = an_object(
        {
            "object": one_of("list"),
            "model": STRING,
            "data": {"type": "array", "items": item},
            "usage": {"type": "object"},
        }
    )
    told = operation("Texts as vectors of length 1", answer, refused="Refused")
    return {"/v1/embeddings": {"post": asking(told, body_of(EMBEDDINGS, ["model", "input"]))}}


def _responses() -> dict[str, Any]:
    answer = an_object(
        {
            "id": STRING,
            "object": one_of("response"),
            "status": one_of("completed", "incomplete"),
            "output": {"type": "array"},
            "usage": {"type": "object"},
        }
    )
    told = operation("A conversation goes on", answer, refused="Refused", stream=EVENTS)
    return {"/v1/responses": {"post": asking(told, body_of(RESPONSES, ["model", "input"]))}}


def _anthropic() -> dict[str, Any]:
    answer = an_object(
        {
            "id": STRING,
            "type": one_of("message"),
            "content": {"type": "array"},
            "stop_reason": one_of("end_turn", "max_tokens", "stop_sequence", "tool_use"),
            "usage": {"type": "object"},
        }
    )
    told = operation(
        "A conversation goes on, in Anthropic's shape",
        answer,
        refused=ANTHROPIC_REFUSED,
        stream=EVENTS,
    )
    counted = operation(
        "How many tokens a conversation is",
        an_object({"input_tokens": {"type": "integer"}}),
        refused=ANTHROPIC_REFUSED,
    )
    required = ["model", "messages"]
    return {
        "/v1/messages": {"post": asking(told, body_of(MESSAGES, [*required, "max_tokens"]))},
        "/v1/messages/count_tokens": {"post": asking(counted, body_of(MESSAGES, required))},
    }


def _ollama() -> dict[str, Any]:
    listed = an_object({"models": {"type": "array", "items": an_object({"name": STRING})}})
    ended: dict[str, Schema] = {"model": STRING, "created_at": STRING, "done": ALWAYS}

    def get(summary: str, answer: Schema) -> dict[str, Any]:
        return {"get": operation(summary, answer, refused=OLLAMA_REFUSED)}

    def post(summary: str, answer: Schema, body: Schema, stream: str = "") -> dict[str, Any]:
        told = operation(summary, answer, refused=OLLAMA_REFUSED, stream=stream)
        return {"post": asking(told, body)}

    paths: dict[str, Any] = {
        "/api/version": get("The fleet's version", an_object({"version": STRING})),
        "/api/tags": get("Models of the fleet, in Ollama's shape", listed),
        "/api/ps": get("The same: what is served is loaded", listed),
        "/api/show": post(
            "One of them",
            an_object({"details": {"type": "object"}, "model_info": {"type": "object"}}),
            body_of({"model": text_of(), "name": STRING, "verbose": ANYTHING}, ["model"]),
        ),
        "/api/chat": post(
            "A conversation goes on, in Ollama's shape",
            an_object({**ended, "message": {"type": "object"}}),
            body_of(OLLAMA_CHAT, ["model", "messages"]),
            LINES,
        ),
        "/api/generate": post(
            "A prompt is answered, in Ollama's shape",
            an_object({**ended, "response": STRING}),
            body_of(OLLAMA_GENERATE, ["model"]),
            LINES,
        ),
        "/api/embed": post(
            "Texts as vectors of length 1, in Ollama's shape",
            an_object({"model": STRING, "embeddings": {"type": "array", "items": VECTOR}}),
            body_of(OLLAMA_EMBED, ["model", "input"]),
        ),
        "/api/embeddings": post(
            "One text as a vector, in Ollama's older shape",
            an_object({"embedding": VECTOR}),
            body_of(OLLAMA_EMBEDDINGS, ["model", "prompt"]),
        ),
    }
    for name in REFUSED_OF_OLLAMA:
        method = "delete" if name == "delete" else "post"
        told = operation("Refused, with what does it here", None, refused=OLLAMA_REFUSED)
        paths[f"/api/{name}"] = {method: asking(told, body_of({"model": ANYTHING}, []))}
    return paths
