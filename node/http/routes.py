"""Which handler answers at which path, of all that give answers of models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias, TypeVar

from aiohttp import web

from kakeya_fleet.node.http.answer_desk import AnswerDesk
from kakeya_fleet.node.http.anthropic_endpoints import AnthropicEndpoints
from kakeya_fleet.node.http.endpoints import Endpoints
from kakeya_fleet.node.http.ollama_endpoints import REFUSED, OllamaEndpoints

Answering: TypeAlias = Callable[[AnswerDesk, web.Request], Awaitable[web.StreamResponse]]
"""Answers a request at the desk of a node that serves."""

Ends = TypeVar("Ends")


def routes() -> Iterator[tuple[str, str, Answering]]:
    """Method, path and who answers."""
    yield "GET", "/v1/models", _by(Endpoints, Endpoints.list_models)
    yield "GET", "/v1/models/{model:.+}", _by(Endpoints, Endpoints.one_model)
    yield "POST", "/v1/chat/completions", _by(Endpoints, Endpoints.chat)
    yield "POST", "/v1/completions", _by(Endpoints, Endpoints.completion)
    yield "POST", "/v1/responses", _by(Endpoints, Endpoints.responses)
    yield "POST", "/v1/embeddings", _by(Endpoints, Endpoints.embeddings)
    yield "POST", "/v1/messages", _by(AnthropicEndpoints, AnthropicEndpoints.messages)
    counting = _by(AnthropicEndpoints, AnthropicEndpoints.count_tokens)
    yield "POST", "/v1/messages/count_tokens", counting
    yield "GET", "/api/version", _by(OllamaEndpoints, OllamaEndpoints.version)
    yield "GET", "/api/tags", _by(OllamaEndpoints, OllamaEndpoints.tags)
    yield "GET", "/api/ps", _by(OllamaEndpoints, OllamaEndpoints.running)
    yield "POST", "/api/show", _by(OllamaEndpoints, OllamaEndpoints.show)
    yield "POST", "/api/chat", _by(OllamaEndpoints, OllamaEndpoints.chat)
    yield "POST", "/api/generate", _by(OllamaEndpoints, OllamaEndpoints.generate)
    yield "POST", "/api/embed", _by(OllamaEndpoints, OllamaEndpoints.embed)
    yield "POST", "/api/embeddings", _by(OllamaEndpoints, OllamaEndpoints.embeddings)
    for name in REFUSED:
        method = "DELETE" if name == "delete" else "POST"
        yield method, f"/api/{name}", _by(OllamaEndpoints, OllamaEndpoints.refused)


def _by(
    make: Callable[[AnswerDesk], Ends],
    handler: Callable[[Ends, web.Request], Awaitable[web.StreamResponse]],
) -> Answering:
    return lambda desk, request: handler(make(desk), request)
