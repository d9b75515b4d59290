"""The handlers of Ollama's shapes: /api."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping

from aiohttp import web

from kakeya.text import TextCodec
from kakeya_fleet.node.http.answer_desk import AnswerDesk
from kakeya_fleet.node.http.embedding_request import read_ollama_embed, read_ollama_embeddings
from kakeya_fleet.node.http.embedding_shape import ollama_embed, ollama_embeddings
from kakeya_fleet.node.http.fields import Fields
from kakeya_fleet.node.http.ollama_request import LATEST, read_ollama_chat, read_ollama_generate
from kakeya_fleet.node.http.ollama_shape import OllamaShape, loaded, ollama_time
from kakeya_fleet.node.http.preparing import knows_tools, prepare_chat, prepare_completion
from kakeya_fleet.node.http.refusal import HttpRefusal, bad_field
from kakeya_fleet.node.http.served_models import ServedModel

REFUSED = {
    "pull": "`fleet pull MODEL --to NODE` brings one to a node's disk, `fleet load` has it served",
    "push": "a fleet publishes nothing",
    "create": "`fleet load` serves a folder of the hub's format, or a GGUF file",
    "copy": "a model has the name that its node serves it under",
    "delete": "`fleet unload` takes a model away, `fleet rm MODEL` what was brought",
}
"""Endpoints of Ollama's that change what is served, and what does it here."""


class OllamaEndpoints:
    """Handlers of one node."""

    def __init__(self, desk: AnswerDesk) -> None:
        self._desk = desk

    async def version(self, _request: web.Request) -> web.Response:
        """GET /api/version: the fleet's own."""
        return web.json_response({"version": importlib.metadata.version("kakeya-fleet")})

    async def tags(self, _request: web.Request) -> web.Response:
        """GET /api/tags: the models of the fleet."""
        listed = [_tag(model) for model in await self._desk.models.all()]
        return web.json_response({"models": listed})

    async def running(self, _request: web.Request) -> web.Response:
        """GET /api/ps: the same, as whatever is served is loaded."""
        listed = [
            {**_tag(model), "size_vram": 0, "context_length": model.offer.context_length}
            for model in await self._desk.models.all()
        ]
        return web.json_response({"models": listed})

    async def show(self, request: web.Request) -> web.Response:
        """POST /api/show: what a model's card says."""
        async with self._desk.asked(request, _model_name) as name:
            model = await self._desk.models.find(name)
            codec = await self._desk.models.codec(model)
            return web.json_response(_card(model, codec))

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /api/chat."""
        return await self._desk.answer_chat(request, read_ollama_chat, OllamaShape.of_chat)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """POST /api/generate: a chat of one message, or a text that goes on."""
        desk = self._desk
        async with desk.asked(request, read_ollama_generate) as asked:
            model = await desk.models.find(asked.model)
            if asked.completion is None:
                return web.json_response(loaded(asked.model, desk.now_unix()))
            codec = await desk.models.codec(model)
            if asked.chat is not None and codec.has_chat_template:
                prepared = await prepare_chat(asked.chat, desk.models)
            else:
                prepared = await prepare_completion(asked.completion, desk.models)
            return await desk.answer(request, prepared, OllamaShape.of_text(desk.facts(prepared)))

    async def embed(self, request: web.Request) -> web.Response:
        """POST /api/embed."""
        return await self._desk.embed(request, read_ollama_embed, ollama_embed)

    async def embeddings(self, request: web.Request) -> web.Response:
        """POST /api/embeddings, the older one."""
        return await self._desk.embed(request, read_ollama_embeddings, ollama_embeddings)

    async def refused(self, request: web.Request) -> web.Response:
        """What a node does not do by HTTP."""
        name = request.path.rpartition("/")[2]
        raise HttpRefusal("UNSUPPORTED", f"{request.path} is not served here: {REFUSED[name]}")


def _model_name(body: Mapping[str, object]) -> str:
    fields = Fields(body)
    fields.check_known({"model", "name", "verbose"})
    name = fields.text("model") or fields.text("name")
    if not name:
        raise bad_field("model", "model is missing; GET /api/tags lists those that are served")
    return name.removesuffix(LATEST)


def _tag(model: ServedModel) -> dict[str, object]:
    return {
        "name": model.offer.model_id,
        "model": model.offer.model_id,
        "modified_at": ollama_time(model.since_unix),
        # Of its files; what a node says of a model is what it takes in memory.
        "size": 0,
        "digest": model.offer.weights_digest,
        "details": _details(model),
    }


def _details(model: ServedModel) -> dict[str, object]:
    family = model.offer.architecture
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": "",
        "quantization_level": model.offer.quantization or model.offer.dtype,
    }


def _card(model: ServedModel, codec: TextCodec) -> dict[str, object]:
    offer = model.offer
    family = offer.architecture or "model"
    tools = ["tools"] if codec.has_chat_template and knows_tools(codec) else []
    return {
        "modified_at": ollama_time(model.since_unix),
        "details": _details(model),
        "model_info": {
            "general.architecture": family,
            f"{family}.context_length": offer.context_length,
            f"{family}.vocab_size": offer.vocabulary_size,
        },
        "capabilities": ["completion", *tools],
    }
