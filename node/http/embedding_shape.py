"""Vectors in the shapes of OpenAI's and Ollama's answers, as bytes: they are long."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kakeya_fleet.node.http.embedding import Embedded
from kakeya_fleet.node.http.embedding_request import EmbeddingRequest


def openai_embeddings(asked: EmbeddingRequest, found: Embedded) -> bytes:
    """The body of /v1/embeddings."""
    items = (
        b'{"object": "embedding", "index": %d, "embedding": %s}' % (index, vector)
        for index, vector in enumerate(found.vectors)
    )
    usage = {"prompt_tokens": found.token_count, "total_tokens": found.token_count}
    told = {"object": "list", "model": asked.model, "usage": usage}
    return _with(told, b"data", b"[" + b", ".join(items) + b"]")


def ollama_embed(asked: EmbeddingRequest, found: Embedded) -> bytes:
    """The body of /api/embed."""
    told = {"model": asked.model, "load_duration": 0, "prompt_eval_count": found.token_count}
    return _with(told, b"embeddings", b"[" + b", ".join(found.vectors) + b"]")


def ollama_embeddings(_asked: EmbeddingRequest, found: Embedded) -> bytes:
    """The body of /api/embeddings."""
    (vector,) = found.vectors
    return b'{"embedding": ' + vector + b"}"


def _with(told: Mapping[str, object], name: bytes, value: bytes) -> bytes:
    """The JSON object `told` with one more field, whose value is JSON."""
    return json.dumps(told)[:-1].encode() + b', "' + name + b'": ' + value + b"}"
