"""What schemas of docs/openapi.json are made of."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from kakeya import KvQuality, KvStrategy, RestorerKind
from kakeya_fleet.node.http.completion_request import MAX_PROMPT_TOKENS
from kakeya_fleet.node.http.request_options import known_names
from kakeya_fleet.node.rpc.error_reasons import REASONS

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


IDS: Schema = {
    "type": "array",
    "items": whole(0, INT32_MOST),
    "minItems": 1,
    "maxItems": MAX_PROMPT_TOKENS,
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
        "reuse": BOOLEAN,
    },
}


def an_object(required: Mapping[str, Schema], **more: Schema) -> Schema:
    """An object that has these fields at least, and may have more."""
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **more},
    }


def text_of(most: int | None = None) -> Schema:
    """A string that is not empty."""
    return {"type": "string", "minLength": 1, **({} if most is None else {"maxLength": most})}


def operation(
    summary: str, answer: Schema | None, *, refused: str, stream: str = ""
) -> dict[str, Any]:
    """What answers, as a `stream` of that content type too; None where nothing ever does.

    Refusals are those of components/responses/`refused`.
    """
    responses: dict[str, Any] = {}
    if answer is not None:
        content: dict[str, Any] = {"application/json": {"schema": answer}}
        if stream:
            content[stream] = {}
        responses["200"] = {"description": "OK", "content": content}
    return {"summary": summary, "responses": {**responses, **_refusals(refused)}}


def asking(told: dict[str, Any], body: Schema) -> dict[str, Any]:
    """An operation with a body."""
    content = {"application/json": {"schema": body}}
    return {**told, "requestBody": {"required": True, "content": content}}


def body_of(fields: Mapping[str, Schema], required: list[str]) -> Schema:
    """A body that has no other fields."""
    return {
        "type": "object",
        "required": required,
        "additionalProperties": False,
        "properties": dict(fields),
    }


def check_fields(name: str, told: set[str], read: set[str]) -> None:
    """Raises `ValueError` when the description has not the fields that the node reads."""
    if told != read:
        raise ValueError(f"{name}: {sorted(told ^ read)} are only in the description or the code")


def _refusals(refused: str) -> dict[str, Any]:
    """One for each status that a reason has, and those of HTTP itself; no fault is one of them."""
    statuses = {reason.http_status for reason in REASONS.values()} | {400, 404, 405, 417}
    return {
        str(status): {"$ref": f"#/components/responses/{refused}"}
        for status in sorted(statuses)
        if HTTPStatus.BAD_REQUEST <= status != HTTPStatus.INTERNAL_SERVER_ERROR
    }
