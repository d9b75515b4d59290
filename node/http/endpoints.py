"""The handlers of /v1: each request is one session of the fleet's own client."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog
from aiohttp import web

from kakeya import AsyncClient, KakeyaError
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.holding import held_by
from kakeya_fleet.node.http.answer_feed import AnswerFeed
from kakeya_fleet.node.http.answer_shape import AnswerShape, Chunk
from kakeya_fleet.node.http.answering import Delta, End, Happening, Work, answer
from kakeya_fleet.node.http.callers import CALLER, CallersClients
from kakeya_fleet.node.http.chat_request import read_chat
from kakeya_fleet.node.http.chat_shape import ChatShape
from kakeya_fleet.node.http.completion_request import read_completion
from kakeya_fleet.node.http.completion_shape import CompletionShape
from kakeya_fleet.node.http.json_body import read_json
from kakeya_fleet.node.http.kept_sessions import KeptSessions
from kakeya_fleet.node.http.preparing import Prepared, prepare_chat, prepare_completion
from kakeya_fleet.node.http.refusal import HttpRefusal, refusal_of
from kakeya_fleet.node.http.served_models import ServedModel, ServedModels
from kakeya_fleet.node.http.server_sent_events import DONE, KEEP_ALIVE, event
from kakeya_fleet.node.http.shape_facts import ShapeFacts
from kakeya_fleet.node.metrics import NodeMetrics

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Stream:
    """A response on its way, and the longest wait for the client to take a piece."""

    response: web.StreamResponse
    transport: asyncio.Transport | None
    write_seconds: float

    async def write(self, data: bytes) -> None:
        """Raises `ConnectionResetError` when the client is gone, or takes nothing."""
        try:
            async with asyncio.timeout(self.write_seconds):
                await self.response.write(data)
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()
            raise ConnectionResetError("the client takes nothing") from None


class Endpoints:
    """Handlers of one node. `close` when no request runs any more."""

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
        self._clients = clients
        self._limits = allowances.limits.http
        self._metrics = metrics
        self._models = ServedModels(client, is_loading)
        self._requests = allowances.share("http.requests", _too_many_requests)
        self._bodies = allowances.share("http.bodies_bytes", _too_many_requests)
        self._now_unix = now_unix
        self._kept = KeptSessions(clients, allowances)

    async def close(self) -> None:
        """Closes the sessions that are kept."""
        await self._kept.close()

    @property
    def running_count(self) -> int:
        """Requests that are answered now."""
        return self._requests.used

    async def list_models(self, _request: web.Request) -> web.Response:
        """GET /v1/models."""
        listed = [_model(model) for model in await self._models.all()]
        return web.json_response({"object": "list", "data": listed})

    async def one_model(self, request: web.Request) -> web.Response:
        """GET /v1/models/{model}."""
        return web.json_response(_model(await self._models.find(request.match_info["model"])))

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        caller = request[CALLER].caller
        with held_by(self._bodies, caller) as memory:
            asked = read_chat(await read_json(request, self._limits, memory))
            with self._requests.holding(caller):
                prepared = await prepare_chat(asked, self._models)
                facts = self._facts(prepared)
                shape = ChatShape(facts, prepared.work.codec.decode, asked.tool_names)
                return await self._answer(request, prepared.work, shape)

    async def completion(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        caller = request[CALLER].caller
        with held_by(self._bodies, caller) as memory:
            asked = read_completion(await read_json(request, self._limits, memory))
            with self._requests.holding(caller):
                prepared = await prepare_completion(asked, self._models)
                shape = CompletionShape(
                    self._facts(prepared),
                    prepared.work.codec.decode,
                    asked.options.choices,
                    prepared.prompt_texts,
                )
                return await self._answer(request, prepared.work, shape)

    async def _answer(
        self, request: web.Request, work: Work, shape: AnswerShape
    ) -> web.StreamResponse:
        async with (
            self._clients.client_of(request[CALLER]) as client,
            AnswerFeed(partial(answer, client, work, self._kept.of(request[CALLER]))) as feed,
        ):
            if work.options.stream:
                return await self._stream(request, feed, shape)
            return await self._whole(feed, shape)

    async def _whole(self, feed: AnswerFeed, shape: AnswerShape) -> web.Response:
        deltas: list[Delta] = []
        ends: list[End] = []
        while (happened := await feed.take(self._limits.keep_alive_seconds)) != []:
            deltas.extend(each for each in happened or () if isinstance(each, Delta))
            ends.extend(each for each in happened or () if isinstance(each, End))
        ends.sort(key=lambda end: end.index)
        return web.json_response(shape.whole(deltas, ends))

    async def _stream(
        self, request: web.Request, feed: AnswerFeed, shape: AnswerShape
    ) -> web.StreamResponse:
        # Before the first token an error has a status of its own; after the first
        # silence the client needs a sign of life more than that.
        happened = await feed.take(self._limits.keep_alive_seconds)
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        await response.prepare(request)
        stream = _Stream(response, request.transport, self._limits.write_seconds)
        try:
            with self._metrics.http_streams_active.track_inprogress():
                await self._tell(stream, feed, shape, happened)
        except KakeyaError as error:
            await stream.write(event(refusal_of(error).envelope()))
        except HttpRefusal as refusal:
            await stream.write(event(refusal.envelope()))
        except ConnectionResetError:
            raise
        except Exception:  # noqa: BLE001 - what began as a stream must not go on as another answer
            _log.exception("http_fault", path=request.path)
            fault = HttpRefusal("INTERNAL_ERROR", "a fault of this node; see its log")
            await stream.write(event(fault.envelope()))
        await response.write_eof()
        return response

    async def _tell(
        self,
        stream: _Stream,
        feed: AnswerFeed,
        shape: AnswerShape,
        happened: list[Happening] | None,
    ) -> None:
        ends: list[End] = []
        if opening := _events(shape.opening()):
            await stream.write(opening)
        while happened != []:
            chunks: list[Chunk] = []
            for each in happened or ():
                if isinstance(each, End):
                    ends.append(each)
                    chunks.extend(shape.end(each))
                else:
                    chunks.extend(shape.delta(each))
            if chunks or happened is None:
                await stream.write(_events(chunks) or KEEP_ALIVE)
            happened = await feed.take(self._limits.keep_alive_seconds)
        await stream.write(_events(shape.closing(ends)) + DONE)

    def _facts(self, prepared: Prepared) -> ShapeFacts:
        work = prepared.work
        return ShapeFacts(
            identity=secrets.token_hex(12),
            created=int(self._now_unix()),
            model=work.options.model,
            weights_digest=prepared.model.offer.weights_digest,
            answer_count=work.answer_count,
            prompt_token_count=work.prompt_token_count,
            include_usage=work.options.include_usage,
            scored=work.options.sampling.top_log_probabilities is not None,
        )


_STREAM_HEADERS: Mapping[str, str] = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    # A proxy that collects a stream before it passes it on has no stream.
    "X-Accel-Buffering": "no",
}


def _too_many_requests(text: str, **_metadata: str) -> HttpRefusal:
    """A queue would only hide the load."""
    return HttpRefusal(
        "TOO_MANY_REQUESTS", f"{text}; come back, or ask another node", retry_after=1.0
    )


def _events(chunks: Iterable[Chunk]) -> bytes:
    return b"".join(map(event, chunks))


def _model(model: ServedModel) -> dict[str, object]:
    return {
        "id": model.offer.model_id,
        "object": "model",
        "created": model.since_unix,
        "owned_by": model.node_name,
        "kakeya": {
            "weights_digest": model.offer.weights_digest,
            "tokenizer_digest": model.offer.tokenizer_digest,
            "context_length": model.offer.context_length,
            "quantization": model.offer.quantization,
            "dtype": model.offer.dtype,
        },
    }
