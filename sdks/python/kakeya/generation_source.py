"""The messages of one generation, from one node or, when that is lost, from several."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from kakeya.errors import Draining, KakeyaError, UnexpectedError
from kakeya.history import History
from kakeya.streams import MessageStream
from kakeya.successor import LOST
from kakeya.v1 import runtime_pb2

GenerateStream: TypeAlias = MessageStream[runtime_pb2.GenerateRequest, runtime_pb2.GenerateResponse]

MAX_RESUMPTIONS = 8
"""Of one generation or append: nodes that die one after the other have a common cause."""


@dataclass(frozen=True, slots=True)
class GenerationTerms:
    """What a generation does with its session.

    `open` is the stream of a request at the session's node; `resume` takes the session
    to another node for the error given, so many seconds after the generation began, and raises
    that error when there is none;
    `stop_token_ids` end a generation, which may take `timeout` seconds in all.
    """

    open: Callable[[runtime_pb2.GenerateRequest], GenerateStream]
    resume: Callable[[KakeyaError, float], Awaitable[None]]
    history: History
    stop_token_ids: Collection[int]
    timeout: float


class GenerationSource:
    """Reads a generation to its end.

    What a lost node still owed is asked of the next one: as many tokens as are missing,
    of the same stream, in the time that is left. The end counts the tokens of all
    nodes; its timeline is the last node's.
    """

    def __init__(self, request: runtime_pb2.GenerateRequest, terms: GenerationTerms) -> None:
        self._request = request
        self._terms = terms
        self._clock = asyncio.get_running_loop().time
        self._start = len(terms.history)
        self._started_at = self._clock()
        self._resumptions = 0
        self._stream = terms.open(request)
        self._ended = False
        self._completed = False

    @property
    def completed(self) -> bool:
        """Whether the generation came to its end."""
        return self._completed

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended

    def leave(self) -> None:
        """Leaves the node's stream; a second time does nothing."""
        self._ended = True
        self._stream.leave()

    async def read(self) -> runtime_pb2.GenerateResponse | None:
        """The next message; None after the last one, or when the generation was left."""
        if self._ended:
            return None
        try:
            return await self._read()
        except BaseException:
            self.leave()
            raise

    async def _read(self) -> runtime_pb2.GenerateResponse | None:
        while True:
            lost: KakeyaError
            try:
                message = await self._stream.read()
            except LOST as error:
                lost = error
            else:
                if message is not None and not _is_draining(message):
                    return self._whole(message)
                if message is None and (self._ended or self._completed):
                    self._ended = True
                    return None
                lost = _loss(message)
                self._stream.leave()
            end = await self._go_on(lost)
            if end is not None or self._ended:
                return end

    async def _go_on(self, lost: KakeyaError) -> runtime_pb2.GenerateResponse | None:
        """Opens the rest elsewhere; gives the end when nothing is missing but that."""
        self._resumptions += 1
        late = self._seconds >= self._terms.timeout
        if self._ended or self._completed or late or self._resumptions > MAX_RESUMPTIONS:
            raise lost
        end = self._own_end()
        if end is not None:
            self._completed = True
            return end
        await self._terms.resume(lost, self._seconds)
        if self._ended:
            return None
        # Appending there took a while.
        end = self._own_end()
        if end is not None:
            self._completed = True
            return end
        self._stream = self._terms.open(self._missing())
        return None

    @property
    def _received(self) -> int:
        """Tokens that arrived since the generation began, from all nodes."""
        return len(self._terms.history) - self._start

    @property
    def _seconds(self) -> float:
        return self._clock() - self._started_at

    def _whole(self, message: runtime_pb2.GenerateResponse) -> runtime_pb2.GenerateResponse:
        """The message; an end with the count and the seconds of all nodes."""
        if message.HasField("done"):
            self._completed = True
            if self._resumptions:
                message.done.generated_token_count = self._received
                message.done.timings.total_seconds = self._seconds
        return message

    def _missing(self) -> runtime_pb2.GenerateRequest:
        request = runtime_pb2.GenerateRequest()
        request.CopyFrom(self._request)
        request.max_tokens -= self._received
        request.said_token_count += self._received
        if request.deadline_seconds > 0:
            request.deadline_seconds -= self._seconds
        return request

    def _own_end(self) -> runtime_pb2.GenerateResponse | None:
        """The end of a generation that has all its tokens, or no time left."""
        request = self._request
        if self._received and self._terms.history.last in self._terms.stop_token_ids:
            reason = runtime_pb2.STOP_REASON_STOP_TOKEN
        elif self._received >= request.max_tokens > 0:
            reason = runtime_pb2.STOP_REASON_MAX_TOKENS
        elif 0 < request.deadline_seconds <= self._seconds:
            reason = runtime_pb2.STOP_REASON_DEADLINE
        else:
            return None
        return runtime_pb2.GenerateResponse(
            done=runtime_pb2.GenerateDone(
                stop_reason=reason,
                generated_token_count=self._received,
                history_length=len(self._terms.history),
                timings=runtime_pb2.GenerateTimings(total_seconds=self._seconds),
                seed=request.seed,
            )
        )


def _is_draining(message: runtime_pb2.GenerateResponse) -> bool:
    return message.HasField("done") and message.done.stop_reason == runtime_pb2.STOP_REASON_DRAINING


def _loss(message: runtime_pb2.GenerateResponse | None) -> KakeyaError:
    if message is None:
        return UnexpectedError("the node ended the generation without saying why")
    return Draining("the node is leaving the fleet")
