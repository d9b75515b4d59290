"""The handlers of /v1 in OpenAI's shapes."""

from __future__ import annotations

from datetime import UTC, datetime

from aiohttp import web

from kakeya_fleet.node.http.answer_desk import AnswerDesk
from kakeya_fleet.node.http.answer_shape import AnswerShape
from kakeya_fleet.node.http.chat_request import ChatRequest, read_chat
from kakeya_fleet.node.http.chat_shape import ChatShape
from kakeya_fleet.node.http.completion_request import read_completion
from kakeya_fleet.node.http.completion_shape import CompletionShape
from kakeya_fleet.node.http.embedding_request import read_embeddings
from kakeya_fleet.node.http.embedding_shape import openai_embeddings
from kakeya_fleet.node.http.preparing import Prepared, prepare_completion
from kakeya_fleet.node.http.response_request import read_response
from kakeya_fleet.node.http.response_shape import ResponseShape
from kakeya_fleet.node.http.served_models import ServedModel
from kakeya_fleet.node.http.shape_facts import ShapeFacts

ANTHROPIC_VERSION = "anthropic-version"
"""A header that Anthropic's clients alone send."""


class Endpoints:
    """Handlers of one node."""

    def __init__(self, desk: AnswerDesk) -> None:
        self._desk = desk

    async def list_models(self, request: web.Request) -> web.Response:
        """GET /v1/models, which Anthropic's clients ask for too."""
        listed = [_model(model) for model in await self._desk.models.all()]
        body: dict[str, object] = {"object": "list", "data": listed}
        if ANTHROPIC_VERSION in request.headers:
            ids = [each["id"] for each in listed]
            ends = {"first_id": ids[0], "last_id": ids[-1]} if ids else {}
            body |= {"has_more": False, "first_id": None, "last_id": None, **ends}
        return web.json_response(body)

    async def one_model(self, request: web.Request) -> web.Response:
        """GET /v1/models/{model}."""
        found = await self._desk.models.find(request.match_info["model"])
        return web.json_response(_model(found))

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        return await self._desk.answer_chat(request, read_chat, _chat_shape)

    async def responses(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/responses."""
        return await self._desk.answer_chat(request, read_response, ResponseShape.of)

    async def completion(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        async with self._desk.asked(request, read_completion) as asked:
            prepared = await prepare_completion(asked, self._desk.models)
            shape = CompletionShape(
                self._desk.facts(prepared),
                prepared.work.codec.decode,
                asked.options.choices,
                prepared.prompt_texts,
            )
            return await self._desk.answer(request, prepared, shape)

    async def embeddings(self, request: web.Request) -> web.Response:
        """POST /v1/embeddings."""
        return await self._desk.embed(request, read_embeddings, openai_embeddings)


def _chat_shape(facts: ShapeFacts, asked: ChatRequest, prepared: Prepared) -> AnswerShape:
    return ChatShape(facts, prepared.work.codec.decode, asked.tool_names)


def _model(model: ServedModel) -> dict[str, object]:
    """With what Anthropic's clients read besides."""
    since = datetime.fromtimestamp(model.since_unix, UTC)
    return {
        "id": model.offer.model_id,
        "object": "model",
        "type": "model",
        "display_name": model.offer.model_id,
        "created": model.since_unix,
        "created_at": since.isoformat().replace("+00:00", "Z"),
        "owned_by": model.node_name,
        "kakeya": {
            "weights_digest": model.offer.weights_digest,
            "tokenizer_digest": model.offer.tokenizer_digest,
            "context_length": model.offer.context_length,
            "quantization": model.offer.quantization,
            "dtype": model.offer.dtype,
        },
    }
