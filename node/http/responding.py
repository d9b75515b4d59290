"""From the answers of a request to the bytes of its response: whole, or as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from aiohttp import web

from kakeya import KakeyaError
from kakeya_fleet.node.admission.limits import HttpLimits
from kakeya_fleet.node.http.answer_feed import AnswerFeed
from kakeya_fleet.node.http.answer_shape import AnswerShape, Chunk
from kakeya_fleet.node.http.answering import Delta, End, Happening, Work, answer
from kakeya_fleet.node.http.callers import CALLER, CallersClients
from kakeya_fleet.node.http.dialect import Dialect, dialect_of
from kakeya_fleet.node.http.kept_sessions import KeptSessions
from kakeya_fleet.node.http.prompt_reading import PromptReading
from kakeya_fleet.node.http.refusal import HttpRefusal, refusal_of
from kakeya_fleet.node.http.request_spans import request_id_of
from kakeya_fleet.node.metrics import NodeMetrics

_log = structlog.get_logger(__name__)

PROGRESS_SECONDS = 0.5
"""Between two looks at how far a prompt is read, for one who asked for it as data."""
IGNORED_FIELDS = "X-Ignored-Fields"
"""Names the fields of a body that were read past, since they change no token."""


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


@dataclass(frozen=True, slots=True)
class _Answers:
    """What happens in a request's `count` answers, how far its prompts are read, how it is told."""

    count: int
    feed: AnswerFeed
    reading: PromptReading
    shape: AnswerShape


class Responding:
    """The one way of answers to clients, whatever their API."""

    def __init__(
        self, clients: CallersClients, kept: KeptSessions, limits: HttpLimits, metrics: NodeMetrics
    ) -> None:
        """`clients` and `kept` are each for one who calls."""
        self._clients = clients
        self._kept = kept
        self._limits = limits
        self._metrics = metrics

    async def answer(
        self, request: web.Request, work: Work, shape: AnswerShape
    ) -> web.StreamResponse:
        """Answers a request in its shape, whole or as a stream. Raises as `answering.answer`."""
        reading = PromptReading([len(prompt) for prompt in work.prompts])
        kept = self._kept.of(request[CALLER])
        async with (
            self._clients.client_of(request[CALLER]) as client,
            AnswerFeed(partial(answer, client, work, kept, reading)) as feed,
        ):
            if work.options.stream:
                return await self._stream(
                    request, work, _Answers(work.answer_count, feed, reading, shape)
                )
            return await self._whole(work, feed, shape)

    async def _whole(self, work: Work, feed: AnswerFeed, shape: AnswerShape) -> web.Response:
        deltas: list[Delta] = []
        ends: list[End] = []
        while (happened := await feed.take(self._limits.keep_alive_seconds)) != []:
            deltas.extend(each for each in happened or () if isinstance(each, Delta))
            ends.extend(each for each in happened or () if isinstance(each, End))
        ends.sort(key=lambda end: end.index)
        return web.json_response(shape.whole(deltas, ends), headers=noted(work.options.ignored))

    async def _stream(
        self, request: web.Request, work: Work, answers: _Answers
    ) -> web.StreamResponse:
        dialect = dialect_of(request.path)
        looks = work.options.return_progress
        # Before the first token an error has a status of its own; after the first
        # silence the client needs a sign of life more than that.
        happened = await answers.feed.take(self._patience(answers, looks=looks))
        headers = {
            "Content-Type": dialect.content_type,
            **_STREAM_HEADERS,
            **noted(work.options.ignored),
        }
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        stream = _Stream(response, request.transport, self._limits.write_seconds)

        async def refuse(refusal: HttpRefusal) -> None:
            await stream.write(dialect.frame(dialect.refused(refusal, request_id_of(request))))

        try:
            with self._metrics.http_streams_active.track_inprogress():
                await self._tell(stream, answers, dialect, happened, looks=looks)
        except KakeyaError as error:
            await refuse(refusal_of(error))
        except HttpRefusal as refusal:
            await refuse(refusal)
        except ConnectionResetError:
            raise
        except Exception:  # noqa: BLE001 - what began as a stream must not go on as another answer
            _log.exception("http_fault", path=request.path)
            await refuse(HttpRefusal("INTERNAL_ERROR", "a fault of this node; see its log"))
        await response.write_eof()
        return response

    async def _tell(
        self,
        stream: _Stream,
        answers: _Answers,
        dialect: Dialect,
        happened: list[Happening] | None,
        *,
        looks: bool,
    ) -> None:
        """Tells what happens; with `looks` also how far the prompts are read, as data."""
        ends: list[End] = []
        shape, reading = answers.shape, answers.reading
        clock, silence = asyncio.get_running_loop().time, self._limits.keep_alive_seconds
        said_at, read_count = clock(), -1
        if opening := dialect.frames(shape.opening()):
            await stream.write(opening)
        while happened != []:
            if happened is None and (looks or dialect.has_comments):
                await reading.look()
            progress = reading.known
            chunks: list[Chunk] = []
            if looks and progress is not None and progress.processed != read_count:
                chunks.extend(shape.progress(progress))
                read_count = progress.processed
            for each in happened or ():
                if isinstance(each, End):
                    ends.append(each)
                    chunks.extend(shape.end(each))
                else:
                    chunks.extend(shape.delta(each))
            data = dialect.frames(chunks)
            is_silent = happened is None and self._patience(answers, looks=looks) == silence
            # A shape may hold back what happens, such as what may become a call of a tool. Behind
            # the last end, while sessions are closed, nobody waits for more.
            waits = len(ends) < answers.count
            if not data and waits and (is_silent or clock() - said_at >= silence):
                data = dialect.frames(shape.waiting()) or dialect.sign_of_life(progress)
            if data:
                await stream.write(data)
                said_at = clock()
            happened = await answers.feed.take(self._patience(answers, looks=looks))
        await stream.write(dialect.frames(shape.closing(ends)) + dialect.done)

    def _patience(self, answers: _Answers, *, looks: bool) -> float:
        """Seconds to wait for something to happen."""
        silence = self._limits.keep_alive_seconds
        return min(silence, PROGRESS_SECONDS) if looks and not answers.reading.is_over else silence


_STREAM_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    # A proxy that collects a stream before it passes it on has no stream.
    "X-Accel-Buffering": "no",
}


def noted(ignored: Sequence[str]) -> Mapping[str, str]:
    """A header that names the fields of a body that were read past."""
    return {IGNORED_FIELDS: ", ".join(ignored)} if ignored else {}
