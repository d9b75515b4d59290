"""Vectors of the texts of one request, one after the other: each takes its turns like a prompt."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kakeya import AsyncClient, TextVector
from kakeya.text import TextCodec
from kakeya_fleet.node.admission.holding import Holding
from kakeya_fleet.node.http.completion_request import Prompt
from kakeya_fleet.node.http.embedding_request import EmbeddingRequest
from kakeya_fleet.node.http.prompt_encoding import PromptBound
from kakeya_fleet.node.http.refusal import HttpRefusal, bad_field, unsupported
from kakeya_fleet.node.http.served_models import ServedModels
from kakeya_fleet.node.rpc.trace_context import outgoing_header

MAX_ANSWER_VALUES = 1 << 20
"""Of all vectors of an answer: some 12 MB of JSON."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors, each as JSON has it, and the tokens of all texts."""

    vectors: tuple[bytes, ...]
    token_count: int


async def embedded(
    client: AsyncClient, models: ServedModels, request: EmbeddingRequest, memory: Holding
) -> Embedded:
    """What was asked for; `memory` holds the vectors. Raises `HttpRefusal`, `KakeyaError`."""
    model = await models.find(request.model)
    bound = PromptBound.of(model.offer, request.parameter)
    codec: TextCodec | None = None
    if isinstance(request.texts[0], str):
        codec = await models.codec(model)
    characters = sum(len(text) for text in request.texts)
    texts = await models.threads.run(characters, partial(_encoded, codec, bound, request))
    vectors: list[bytes] = []
    first: TextVector | None = None
    for ids in texts:
        vector = await client.embed(request.model, ids, traceparent=outgoing_header())
        if first is None:
            first = vector
            _check_width(request, len(vector.values))
        _check_same(request, codec, first, vector)
        told = _as_base64(vector) if request.is_base64 else _as_numbers(vector)
        memory.take(len(told))
        vectors.append(told)
    return Embedded(tuple(vectors), sum(map(len, texts)))


def _encoded(
    codec: TextCodec | None, bound: PromptBound, request: EmbeddingRequest
) -> tuple[Sequence[int], ...]:
    return tuple(_ids(codec, bound, text, request.parameter) for text in request.texts)


def _ids(
    codec: TextCodec | None, bound: PromptBound, text: Prompt, parameter: str
) -> Sequence[int]:
    ids: Sequence[int]
    if isinstance(text, str) and codec is not None:
        ids = bound.ids(codec, text, add_special_tokens=True)
    else:
        ids = tuple(map(int, text))
    if not ids:
        raise bad_field(parameter, "a text has no tokens: there is nothing to make a vector of")
    if bound.context_length and len(ids) > bound.context_length:
        raise bound.refusal(f"{len(ids)} of the text do not fit")
    return ids


def _check_width(request: EmbeddingRequest, width: int) -> None:
    if request.dimensions not in (None, width):
        raise unsupported(
            "dimensions",
            f"vectors of {request.model} have {width} values, and a part of them means nothing by "
            f"itself; leave dimensions out, or say {width}",
        )
    most = MAX_ANSWER_VALUES // width
    if len(request.texts) > most:
        raise bad_field(
            request.parameter,
            f"{request.parameter} has {len(request.texts)} texts, and vectors of {request.model} "
            f"have {width} values: at most {most} fit in one answer",
        )


def _check_same(
    request: EmbeddingRequest, codec: TextCodec | None, first: TextVector, vector: TextVector
) -> None:
    """Vectors of one answer can be compared, and are of the ids that were meant."""
    changed = ""
    if codec is not None and vector.model.tokenizer_digest != codec.digest:
        changed = "another tokenizer"
    elif vector.model.weights_digest != first.model.weights_digest:
        changed = "other weights"
    if changed:
        raise HttpRefusal(
            "TOKENIZER_CHANGED",
            f"{request.model} came back with {changed} just now; ask again",
            retry_after=1.0,
        )


def _as_numbers(vector: TextVector) -> bytes:
    # Nine digits are enough to find the same float32 again.
    return f"[{', '.join(f'{value:.9g}' for value in vector.values)}]".encode()


def _as_base64(vector: TextVector) -> bytes:
    values = struct.pack(f"<{len(vector.values)}f", *vector.values)
    return b'"' + base64.b64encode(values) + b'"'
