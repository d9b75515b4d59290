"""The bodies that ask for vectors of texts: OpenAI's, Ollama's, and Ollama's older one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kakeya_fleet.node.http.completion_request import Prompt, are_ids
from kakeya_fleet.node.http.fields import Fields
from kakeya_fleet.node.http.ollama_request import HARMLESS, LATEST, OPTIONS
from kakeya_fleet.node.http.refusal import bad_field

MAX_TEXTS = 2048
"""Of one request, as OpenAI has it."""
MAX_DIMENSIONS = 1 << 20
FORMATS = ("float", "base64")

KNOWN = frozenset({"model", "input", "encoding_format", "dimensions", "user"})
OLLAMA_FIELDS = HARMLESS | {"model", "input", "dimensions", "truncate", "options"}
OLLAMA_OLD_FIELDS = HARMLESS | {"model", "prompt", "options"}
"""Fields of a body; others are refused by name."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A checked body: texts, or their token ids, whose field is `parameter`.

    `dimensions` is how many values a vector is to have, None for as many as it has; with
    `is_base64` they are told as bytes. The fields `ignored` change no vector.
    """

    model: str
    texts: tuple[Prompt, ...]
    parameter: str
    dimensions: int | None = None
    is_base64: bool = False
    ignored: tuple[str, ...] = ()


def read_embeddings(body: Mapping[str, object]) -> EmbeddingRequest:
    """OpenAI's. Raises `HttpRefusal`, naming the field."""
    fields = Fields(body)
    fields.check_known(KNOWN)
    form = fields.text("encoding_format", "float")
    if form not in FORMATS:
        raise bad_field("encoding_format", f"encoding_format is one of {', '.join(FORMATS)}")
    return EmbeddingRequest(
        _model(fields, "GET /v1/models"),
        _texts(fields.get("input"), "input"),
        "input",
        fields.whole("dimensions", 1, MAX_DIMENSIONS),
        is_base64=form == "base64",
        ignored=fields.present({"user"}),
    )


def read_ollama_embed(body: Mapping[str, object]) -> EmbeddingRequest:
    """Ollama's /api/embed. Raises `HttpRefusal`, naming the field.

    `truncate` is read past: a text that does not fit is refused, never cut.
    """
    fields = Fields(body)
    fields.check_known(OLLAMA_FIELDS)
    fields.flag("truncate")
    return EmbeddingRequest(
        _model(fields, "GET /api/tags").removesuffix(LATEST),
        _texts(fields.get("input"), "input"),
        "input",
        fields.whole("dimensions", 1, MAX_DIMENSIONS),
        ignored=(*fields.present(HARMLESS | {"truncate"}), *_options(fields)),
    )


def read_ollama_embeddings(body: Mapping[str, object]) -> EmbeddingRequest:
    """Ollama's older /api/embeddings, of one text. Raises `HttpRefusal`, naming the field."""
    fields = Fields(body)
    fields.check_known(OLLAMA_OLD_FIELDS)
    return EmbeddingRequest(
        _model(fields, "GET /api/tags").removesuffix(LATEST),
        (fields.text("prompt"),),
        "prompt",
        ignored=(*fields.present(HARMLESS), *_options(fields)),
    )


def _model(fields: Fields, listing: str) -> str:
    model = fields.text("model")
    if not model:
        raise bad_field("model", f"model is missing; {listing} lists those that are served")
    return model


def _options(fields: Fields) -> tuple[str, ...]:
    """Those of how models are loaded and tokens chosen: no vector depends on them."""
    given = Fields.of(fields.get("options") or {}, "options")
    given.check_known(OPTIONS)
    return given.present(OPTIONS)


def _texts(value: object, name: str) -> tuple[Prompt, ...]:
    listed: list[Any] = value if isinstance(value, list) else [value]
    if isinstance(value, list) and are_ids(value):
        return (tuple(value),)
    if len(listed) > MAX_TEXTS:
        raise bad_field(name, f"{name} has {len(listed)} texts, at most {MAX_TEXTS} may be asked")
    if listed and all(isinstance(each, str) for each in listed):
        return tuple(listed)
    if listed and all(isinstance(each, list) and are_ids(each) for each in listed):
        return tuple(tuple(each) for each in listed)
    raise bad_field(
        name, f"{name} is a string, a list of strings, token ids, or a list of lists of them"
    )
