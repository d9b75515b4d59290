"""A session: a history of token ids that a verifier continues."""

from __future__ import annotations

import asyncio
import math
import random
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from types import TracebackType
from typing import Self, Unpack

from kakeya import ranges
from kakeya.answer import LONGEST_ANSWER, AsyncAnswer, Floor, Pieces, Words
from kakeya.errors import (
    Draining,
    GroupLost,
    HistoryLengthMismatch,
    KakeyaError,
    NodeUnreachable,
    RestorerLost,
    SessionBusy,
    SessionNotFound,
    TransportError,
    UsageError,
)
from kakeya.generated import wire
from kakeya.generated.values import KvStrategy, ModelOffer, Plan, SessionInfo, SessionState
from kakeya.generation import AsyncGeneration
from kakeya.generation_source import (
    MAX_RESUMPTIONS,
    GenerateStream,
    GenerationSource,
    GenerationTerms,
)
from kakeya.history import History
from kakeya.options import GenerateOptions
from kakeya.place import MAX_APPEND_TOKENS, GenerateCall, Place
from kakeya.requests import generate_request
from kakeya.retries import pause_seconds
from kakeya.saying import Saying
from kakeya.streams import MessageSource, MessageStream
from kakeya.successor import LOST, NOBODY_YET, Opening, succeed
from kakeya.text import TextCodec
from kakeya.tokenizer_fetch import fetch_codec
from kakeya.v1 import runtime_pb2
from kakeya.values import Resumption


class AsyncSession:
    """A session on a verifier. Made by `AsyncClient.create_session`.

    Holds the tokens that it appended and received as `history`, so that they
    can be appended to a session elsewhere. Also a context manager that closes
    the session; there, a session that is gone already is not an error.

    A generation that was left early may have committed tokens on the node that
    never arrived here. The next append or generation then rewinds the session
    to `history`: what arrived is what it continues. The node may have to compute
    the keys and values of the history anew for that.

    A session that was created with `resume` outlives its node: while it appends,
    generates or rewinds, the loss of the node takes it to another one, and the tokens
    go on as if nothing had been. So does one that its node evicted, or that is gone
    because the node started anew: it is opened there again. Where nobody can go on,
    the loss is raised, and the next call tries again.
    """

    def __init__(
        self,
        place: Place,
        opening: Opening,
        history: History,
        *,
        resumes: bool = False,
    ) -> None:
        self._place = place
        self._opening = opening
        self._resumes = resumes
        self._resumptions: list[Resumption] = []
        self._history = history
        self._stream: weakref.ref[MessageSource[runtime_pb2.GenerateResponse]] | None = None
        # One operation at a time: positions are known only between operations.
        self._turn = asyncio.Lock()
        self._closed = False
        self._codec: TextCodec | None = None
        self._floor = Floor()

    @property
    def session_id(self) -> str:
        """Names the session on its node. A rewind or a resumption changes it."""
        return self._place.session_id

    @property
    def address(self) -> str:
        """The node that holds the session, host:port."""
        return self._place.connection.address

    @property
    def model(self) -> ModelOffer:
        """The verifier model, as the node's card offers it."""
        return wire.model_offer(self._place.opened.model)

    @property
    def vocabulary_size(self) -> int:
        """Ids are 0 to vocabulary_size - 1."""
        return self._place.opened.vocabulary_size

    @property
    def plan(self) -> Plan:
        """The pair that serves the session, with reasons."""
        return wire.plan(self._place.opened.plan)

    @property
    def kv_strategy(self) -> KvStrategy | None:
        """How keys and values are kept, asked for or not.

        None when nothing was asked for and the node does not tell.
        """
        number = self._place.opened.kv_strategy or self._opening.request.kv_strategy
        return wire.kv_strategy(number) if number else None

    @property
    def prefill_seconds(self) -> float:
        """What the node took to compute the prompt, in seconds.

        The prompt is all that was appended since the session generated last. Waits for
        other sessions' turns are counted; 0 from nodes that do not tell.
        """
        return self._history.prefill_seconds

    @property
    def recomputed_token_count(self) -> int:
        """Positions before the prompt that the node computed once more with it.

        Their keys and values had been given to another session, or lost. 0 from nodes that do
        not tell; one that takes over elsewhere computes all, and counts none.
        """
        return self._history.recomputed_token_count

    @property
    def history(self) -> tuple[int, ...]:
        """All ids that were appended and received, oldest first."""
        return self._history.ids()

    @property
    def history_length(self) -> int:
        """Ids in `history`."""
        return len(self._history)

    @property
    def resumptions(self) -> tuple[Resumption, ...]:
        """The times that the session was opened anew, oldest first."""
        return tuple(self._resumptions)

    def traced_by(self, traceparent: str) -> None:
        """Has what the session does from now on be part of this trace (W3C Trace Context).

        Raises BadRequest.
        """
        self._place = replace(self._place, traceparent=ranges.traceparent(traceparent))

    async def append(
        self,
        token_ids: Sequence[int],
        expected_history_length: int | None = None,
        *,
        room_tokens: int = 0,
    ) -> int:
        """Appends ids to the history; returns its new length.

        Of a session whose memory is taken as its history grows, `room_tokens` takes that of so
        many tokens behind them at once: a generation of as many then lacks none. Where there is
        none nothing is appended (OutOfKvMemory). A node that takes over later knows nothing of it.

        Sent again when the network failed, without ever doubling tokens. More
        than 65,536 ids travel in pieces: after an error `history` tells what
        was appended. Raises HistoryLengthMismatch when the history has not
        `expected_history_length` ids, BadRequest for what is no list of ids,
        TokenOutOfVocabulary, EmptyAppend, ContextExceeded, SessionNotFound,
        SessionBusy, TransportError; RestorerLost with the ids appended.
        """
        ids = ranges.token_ids("token_ids", token_ids)
        room_tokens = ranges.whole("room_tokens", room_tokens, 0)
        async with self._turn:
            self._check_idle()
            if expected_history_length not in (None, len(self._history)):
                raise HistoryLengthMismatch(
                    f"the history held here has {len(self._history)} tokens, "
                    f"not {expected_history_length}; append what is missing"
                )
            for start in range(0, len(ids) or 1, MAX_APPEND_TOKENS):
                piece = ids[start : start + MAX_APPEND_TOKENS]
                room = len(ids) - start - len(piece) + room_tokens if room_tokens else 0
                await self._outliving(partial(self._append_piece, piece, room))
            return len(self._history)

    async def _append_piece(self, token_ids: Sequence[int], room: int) -> None:
        length = len(self._history)
        told = runtime_pb2.AppendTokensResponse()
        try:
            told = await self._send_append(token_ids, room)
        except HistoryLengthMismatch as error:
            if not self._history.in_step:
                await self._fork_back(length)
                told = await self._send_append(token_ids, room)
            elif error.attempts == 1 or (
                # The first attempt may have been applied and only its answer lost.
                (await self.info()).history_length != length + len(token_ids)
            ):
                raise
        except RestorerLost:
            # The node has them; their keys and values wait for an archive.
            self._history.append(token_ids)
            self._history.pending = len(self._history)
            raise
        except (TransportError, asyncio.CancelledError):
            # Whether the node appended them is not known.
            self._history.in_step = False
            raise
        self._history.append(token_ids, told.prefill_seconds, told.recomputed_token_count)

    async def _send_append(
        self, token_ids: Sequence[int], room: int
    ) -> runtime_pb2.AppendTokensResponse:
        history = self._history
        return await self._place.append(token_ids, len(history), history.pending, room)

    def generate(self, max_tokens: int, **options: Unpack[GenerateOptions]) -> AsyncGeneration:
        """Continues the history by at most `max_tokens` ids; `GenerateOptions` says how.

        Raises BadRequest. Nothing is sent before the iteration begins, which raises
        EmptyHistory, BadRequest, SessionNotFound, SessionBusy, RestorerLost (the session
        lives), TransportError.
        """
        # Another node must go on with the same stream.
        request = generate_request(max_tokens, options, draws_seed=self._resumes)
        return AsyncGeneration(lambda: self._start_generation(request), self._history)

    def _start_generation(
        self, request: runtime_pb2.GenerateRequest
    ) -> MessageSource[runtime_pb2.GenerateResponse]:
        self._check_idle()
        source: MessageSource[runtime_pb2.GenerateResponse] = (
            GenerationSource(
                request,
                GenerationTerms(
                    open=self._open_generation,
                    resume=partial(self._resume_generation, request.deadline_seconds),
                    history=self._history,
                    stop_token_ids={*self._opening.request.stop_token_ids, *request.stop_token_ids},
                    timeout=self._place.connection.timeouts.generation,
                ),
            )
            if self._resumes
            else self._open_generation(request)
        )
        self._stream = weakref.ref(source)
        return source

    def _open_generation(self, request: runtime_pb2.GenerateRequest) -> GenerateStream:
        place = self._place
        timeouts = place.connection.timeouts
        timeout = timeouts.generation
        if request.deadline_seconds > 0:
            timeout = min(timeout, request.deadline_seconds + timeouts.stream_idle)

        async def open_call() -> GenerateCall:
            async with self._turn:
                await self._settle()
                self._history.in_step = False
                # Settling may have rewound the session.
                return self._place.generate(request, len(self._history), timeout)

        return MessageStream(
            place.connection,
            open_call,
            first_timeout=timeouts.first_tokens + self._history.pending * timeouts.append_per_token,
            idle_timeout=timeouts.stream_idle,
        )

    async def _resume_generation(
        self, deadline_seconds: float, lost: KakeyaError, spent_seconds: float
    ) -> None:
        left = deadline_seconds - spent_seconds if deadline_seconds > 0 else math.inf
        async with self._turn:
            await self._go_elsewhere(lost, left)

    def say(
        self, text: str, *, max_tokens: int = LONGEST_ANSWER, **options: Unpack[GenerateOptions]
    ) -> AsyncAnswer:
        """Appends `text` as it is, and gives what the model says after it as text.

        By the model's tokenizer (extra `kakeya[text]`), whose stop tokens end it too; the
        first text of a history also gets the tokens that open one. A chat, in turns, is
        `AsyncClient.chat`. Raises BadRequest. Nothing is sent before the iteration begins,
        which raises what `AsyncClient.text`, `append` and `generate` raise; the text
        stays appended then.
        """
        # What is outside its range is told now.
        self.generate(max_tokens, **options)
        return AsyncAnswer(Saying(partial(self._say, text, max_tokens, options)))

    async def _say(
        self, text: str, max_tokens: int, options: GenerateOptions, pieces: Pieces
    ) -> tuple[AsyncGeneration, Words]:
        self._floor.take(pieces)
        if self._codec is None:
            self._codec = await fetch_codec(self._place.connection, self.model.model_id, {})
        codec = self._codec
        opens = not len(self._history)
        await self.append(codec.encode(text, add_special_tokens=opens))
        stops = {*codec.stop_token_ids, *options.get("stop_token_ids", ())}
        ending: GenerateOptions = {**options, "stop_token_ids": sorted(stops)}
        words = Words(codec, {*stops, *self._opening.request.stop_token_ids})
        return self.generate(max_tokens, **ending), words

    async def info(self) -> SessionInfo:
        """The session as its node sees it. Raises SessionNotFound, TransportError."""
        return await self._place.info()

    async def fork(self, history_length: int | None = None) -> AsyncSession:
        """A new session with the first `history_length` ids of this one; None for all.

        Raises what `AsyncClient.create_session` raises, SessionNotFound and
        HistoryLengthMismatch when the history is shorter.
        """
        length = len(self._history) if history_length is None else history_length
        return AsyncSession(
            await self._fork(length),
            self._opening,
            History(self._history.ids(length)),
            resumes=self._resumes,
        )

    async def _fork(self, length: int) -> Place:
        if not 0 <= length <= len(self._history):
            raise HistoryLengthMismatch(
                f"the history held here has {len(self._history)} tokens, {length} cannot be kept"
            )
        return await self._place.fork(length)

    async def rewind(self, history_length: int | None = None) -> None:
        """Goes back to the first `history_length` ids; None for all of `history`.

        The session goes on as a fork of itself, under a new `session_id`.
        Raises what `fork` raises.
        """
        async with self._turn:
            self._check_idle()
            length = len(self._history) if history_length is None else history_length
            await self._outliving(partial(self._fork_back, length))

    async def _fork_back(self, length: int) -> None:
        forked = await self._fork(length)
        left, self._place = self._place, forked
        self._history.cut(length)
        with suppress(SessionNotFound):
            await left.close(left.connection.timeouts.unary)

    async def resume(self) -> None:
        """Takes the session to another live node that serves the same weights.

        Opens it there as it was opened, but for a named proposer or archive that is
        lost too, and appends `history`. The session on the node before is closed
        where it can be. Raises NoPlacement when there is no such node, and what
        opening and appending raise; the session then stays where it is.
        """
        async with self._turn:
            self._check_idle()
            left = self._place
            await self._move("ASKED")
            with suppress(KakeyaError):
                await left.close(left.connection.timeouts.leave)

    async def _outliving(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does the work, in the session opened anew when this one is lost."""
        for _ in range(MAX_RESUMPTIONS):
            try:
                return await work()
            except LOST as error:
                if not self._resumes or self._closed:
                    raise
                await self._go_elsewhere(error)
        return await work()

    async def _go_elsewhere(self, lost: KakeyaError, seconds: float = math.inf) -> None:
        """Goes on after a loss, in `seconds` at most; raises the loss when nobody goes on."""
        if self._closed or self._place.connection.closed:
            raise lost
        try:
            await self._moved(lost, seconds)
        except KakeyaError as failure:
            lost.metadata["resumption_reason"] = failure.reason
            lost.metadata["resumption_failure"] = str(failure)
            lost.add_note(f"and no other node could go on: {failure}")
            raise lost from None

    async def _moved(self, lost: KakeyaError, seconds: float) -> None:
        """Moves; where nobody can go on yet, waits for one that can.

        The node itself is one of them: it may be back soon, as after an upgrade.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + min(seconds, self._place.connection.timeouts.resume)
        forgotten = isinstance(lost, SessionNotFound)
        left = self._place
        for attempt in count():
            try:
                await self._move(lost.reason, forgotten=forgotten)
            except NOBODY_YET:
                pause = pause_seconds(attempt, random.uniform(0.5, 1.0))
                returns = isinstance(lost, Draining | NodeUnreachable)
                if not returns or self._closed or clock() + pause >= until:
                    raise
            else:
                return await self._end_at(left)
            await asyncio.sleep(pause)
            # Once it is back, it knows nothing of the session that it had. Where its connection
            # alone broke, the session is opened anew all the same, from what arrived here.
            forgotten = True
        raise AssertionError("the last attempt returns or raises")

    async def _end_at(self, left: Place) -> None:
        """Ends what a broken connection left behind on the node that goes on."""
        if left.connection is self._place.connection:
            with suppress(KakeyaError):
                await left.close(left.connection.timeouts.leave)

    async def _move(self, reason: str, *, forgotten: bool = False) -> None:
        clock = asyncio.get_running_loop().time
        start = clock()
        left = self._place
        history = self._history.ids()
        self._place = await succeed(left, self._opening, history, forgotten=forgotten)
        self._history.moved()
        self._resumptions.append(
            Resumption(
                from_address=left.connection.address,
                to_address=self._place.connection.address,
                reason=reason,
                history_length=len(self._history),
                seconds=clock() - start,
            )
        )

    def _running(self) -> MessageSource[runtime_pb2.GenerateResponse] | None:
        stream = self._stream() if self._stream is not None else None
        ended = stream is None or stream.ended or self._place.connection.closed
        return None if ended else stream

    def _check_idle(self) -> None:
        if self._running() is not None:
            raise SessionBusy(
                "the session's generation still runs: finish or leave its iterator, "
                "or fork the session"
            )

    def _leave(self) -> None:
        stream = self._running()
        if stream is not None:
            stream.leave()

    async def _settle(self) -> None:
        """Makes the node's history the one held here; nothing to do in most cases."""
        if self._history.in_step:
            return
        info = await self.info()
        if info.state is SessionState.IDLE and info.history_length == len(self._history):
            self._history.in_step = True
        else:
            await self._fork_back(len(self._history))

    async def close(self) -> None:
        """Closes the session and frees its memory. Raises SessionNotFound the second time."""
        self._leave()
        # An operation that this ends must not open the session again.
        self._resumes = False
        await self._place.close(self._place.connection.timeouts.unary)
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()
        if self._closed or self._place.connection.closed:
            return
        # Gone, or gone with its node or its verifier's group, or evicted after its idle time.
        with suppress(SessionNotFound, GroupLost, TransportError, UsageError):
            await self._place.close(self._place.connection.timeouts.leave)
        self._closed = True
