"""Where requests for answers come in, whatever their API: bounded, read, prepared, answered."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from aiohttp import web

from kakeya import AsyncClient
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.holding import Holding, held_by
from kakeya_fleet.node.http.answer_shape import AnswerShape
from kakeya_fleet.node.http.callers import CALLER, CallersClients
from kakeya_fleet.node.http.chat_request import ChatRequest
from kakeya_fleet.node.http.embedding import Embedded, embedded
from kakeya_fleet.node.http.embedding_request import EmbeddingRequest
from kakeya_fleet.node.http.json_body import read_json
from kakeya_fleet.node.http.kept_sessions import KeptSessions
from kakeya_fleet.node.http.preparing import Prepared, prepare_chat
from kakeya_fleet.node.http.refusal import HttpRefusal
from kakeya_fleet.node.http.responding import Responding, noted
from kakeya_fleet.node.http.served_models import ServedModels
from kakeya_fleet.node.http.shape_facts import ShapeFacts
from kakeya_fleet.node.metrics import NodeMetrics

Asked = TypeVar("Asked")

Read = Callable[[Mapping[str, object]], Asked]
"""A body, checked. Raises `HttpRefusal`, naming the field."""


class MakeShape(Protocol):
    """Makes the shape of a chat's answers, one API's."""

    def __call__(self, facts: ShapeFacts, asked: ChatRequest, prepared: Prepared) -> AnswerShape:
        """For one request."""
        ...


class AnswerDesk:
    """One node's. `close` when no request runs any more."""

    def __init__(
        self,
        client: AsyncClient,
        clients: CallersClients,
        allowances: Allowances,
        metrics: NodeMetrics,
        is_loading: Callable[[], bool],
        now_unix: Callable[[], float] = time.time,
    ) -> None:
        """`client` is of this node's own address, so that any node is a way in.

        `clients` are the same, each for one who calls.
        """
        self.models = ServedModels(client, is_loading)
        self.now_unix = now_unix
        self._limits = allowances.limits.http
        self._requests = allowances.share("http.requests", _too_many_requests)
        self._bodies = allowances.share("http.bodies_bytes", _too_many_requests)
        self._clients = clients
        self._kept = KeptSessions(clients, allowances)
        self._responding = Responding(clients, self._kept, self._limits, metrics)

    async def close(self) -> None:
        """Closes the sessions that are kept."""
        await self._kept.close()

    @asynccontextmanager
    async def asked(self, request: web.Request, read: Read[Asked]) -> AsyncIterator[Asked]:
        """What a body asks for, which counts among the requests as the context lasts."""
        async with self._held(request, read) as (asked, _memory):
            yield asked

    @asynccontextmanager
    async def _held(
        self, request: web.Request, read: Read[Asked]
    ) -> AsyncIterator[tuple[Asked, Holding]]:
        """As `asked`, with what holds the body's memory, and an answer's that is whole."""
        caller = request[CALLER].caller
        with held_by(self._bodies, caller) as memory:
            asked = read(await read_json(request, self._limits, memory))
            with self._requests.holding(caller):
                yield asked, memory

    async def embed(
        self,
        request: web.Request,
        read: Read[EmbeddingRequest],
        tell: Callable[[EmbeddingRequest, Embedded], bytes],
    ) -> web.Response:
        """Vectors of texts: `read` from a body, and told as JSON by `tell`."""
        async with (
            self._held(request, read) as (asked, memory),
            self._clients.client_of(request[CALLER]) as client,
        ):
            found = await embedded(client, self.models, asked, memory)
            return web.Response(
                body=tell(asked, found),
                content_type="application/json",
                headers=noted(asked.ignored),
            )

    async def answer_chat(
        self, request: web.Request, read: Read[ChatRequest], make_shape: MakeShape
    ) -> web.StreamResponse:
        """A chat of any API: `read` from its body, answered in the shape that is made for it."""
        async with self.asked(request, read) as asked:
            prepared = await prepare_chat(asked, self.models)
            shape = make_shape(self.facts(prepared), asked, prepared)
            return await self.answer(request, prepared, shape)

    async def answer(
        self, request: web.Request, prepared: Prepared, shape: AnswerShape
    ) -> web.StreamResponse:
        """What was prepared, in its shape."""
        return await self._responding.answer(request, prepared.work, shape)

    def facts(self, prepared: Prepared) -> ShapeFacts:
        """What every body and chunk of the request says alike."""
        work = prepared.work
        return ShapeFacts(
            identity=secrets.token_hex(12),
            created=int(self.now_unix()),
            model=work.options.model,
            weights_digest=prepared.model.offer.weights_digest,
            answer_count=work.answer_count,
            prompt_token_count=work.prompt_token_count,
            include_usage=work.options.include_usage,
            scored=work.options.sampling.top_log_probabilities is not None,
        )


def _too_many_requests(text: str, **_metadata: str) -> HttpRefusal:
    """A queue would only hide the load."""
    return HttpRefusal(
        "TOO_MANY_REQUESTS", f"{text}; come back, or ask another node", retry_after=1.0
    )
