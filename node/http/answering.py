"""Answers of one request: sessions opened, fed, generated from, kept or closed at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TypeAlias

from kakeya import (
    AsyncClient,
    AsyncSession,
    GenerationDone,
    KakeyaError,
    KvStrategy,
    OutOfKvMemory,
    Resumption,
    StopReason,
)
from kakeya.text import TextCodec
from kakeya_fleet.node.http.answer_text import AnswerText, Piece
from kakeya_fleet.node.http.kept_sessions import CallersSessions, SessionTerms
from kakeya_fleet.node.http.prompt_reading import LONG_PROMPT_TOKENS, PromptReading
from kakeya_fleet.node.http.refusal import HttpRefusal
from kakeya_fleet.node.http.request_options import RequestOptions
from kakeya_fleet.node.rpc.trace_context import outgoing_header

LABEL = "http"
"""What the sessions are called in the lists of their nodes."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be answered: each of `prompts` as often as the options have choices.

    `max_tokens` is that of each answer. With `show_special` the text has the
    tokens that stand for no text, such as those that open a tool call. With `terms` its
    session is kept for a next turn of the same conversation, or is that of an earlier one.
    """

    options: RequestOptions
    prompts: tuple[tuple[int, ...], ...]
    max_tokens: int
    codec: TextCodec
    show_special: bool = False
    terms: SessionTerms | None = None

    @property
    def answer_count(self) -> int:
        """Answers in all; those of one prompt stand together."""
        return len(self.prompts) * self.options.choices

    @property
    def prompt_token_count(self) -> int:
        """Tokens of all prompts."""
        return sum(len(prompt) for prompt in self.prompts)


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of the answer `index`."""

    index: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class End:
    """The end of the answer `index`.

    `generated_count` tokens were committed for it, by `forward_count` forwards;
    `accepted_count` of them were drafted. `prefill_seconds` is what computing its
    prompt took, once for all answers of the same prompt, of which the first `cached_count`
    tokens were there already. `stop_string` is the one that ended it. `done` is None when a stop
    string ended it: the node was told to stop, and did not say more.
    """

    index: int
    finish_reason: str
    stop_string: str | None
    token_count: int
    generated_count: int
    forward_count: int
    accepted_count: int
    prefill_seconds: float
    cached_count: int
    address: str
    resumptions: tuple[Resumption, ...]
    done: GenerationDone | None


Happening: TypeAlias = Delta | End
Put: TypeAlias = Callable[[Happening], Awaitable[None]]

_FINISH = {
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTEXT_FULL: "length",
    StopReason.DEADLINE: "length",
    StopReason.STOP_TOKEN: "stop",
    StopReason.COMPLETE: "stop",
}


async def answer(
    client: AsyncClient, work: Work, kept: CallersSessions, reading: PromptReading, put: Put
) -> None:
    """Answers all, side by side; `put` is awaited with what happens, in each answer's order.

    `reading` is of the work's prompts, each of which is read before its answers begin.
    Every session is closed on return, or among the caller's that are `kept`. Raises
    `KakeyaError` and `HttpRefusal`, the first of all answers; the others are given up.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(len(work.prompts)):
                tasks.create_task(_answer_prompt(client, work, number, kept, reading, put))
    except BaseExceptionGroup as group:
        raise _first(group) from None


async def _answer_prompt(
    client: AsyncClient,
    work: Work,
    number: int,
    kept: CallersSessions,
    reading: PromptReading,
    put: Put,
) -> None:
    """One session with the prompt; the answers but the first are of forks of it."""
    async with AsyncExitStack() as sessions:
        begun = await _begun(client, work, number, kept, reading)
        reading.read(number, begun.cached_count)
        session = begun.session
        await sessions.enter_async_context(session)
        if session.model.tokenizer_digest != work.codec.digest:
            raise HttpRefusal(
                "TOKENIZER_CHANGED",
                f"{work.options.model} came back with another tokenizer just now; ask again",
                retry_after=1.0,
            )
        forks = [
            await sessions.enter_async_context(await session.fork())
            for _ in range(1, work.options.choices)
        ]
        async with asyncio.TaskGroup() as tasks:
            first = number * work.options.choices
            for index, each in enumerate([session, *forks], first):
                tasks.create_task(_generate(replace(begun, session=each), work, index, put))
        if work.terms is not None and work.terms.serves(session.model):
            await kept.keep(work.terms, session)
            sessions.pop_all()


@dataclass(frozen=True, slots=True)
class _Begun:
    """A session with a whole prompt, the first `cached_count` ids of which were there already."""

    session: AsyncSession
    cached_count: int
    prefill_seconds: float


async def _begun(
    client: AsyncClient, work: Work, number: int, kept: CallersSessions, reading: PromptReading
) -> _Begun:
    prompt = work.prompts[number]
    if work.terms is not None:
        session = await kept.take(work.terms, prompt)
        if session is not None:
            with reading.by(number, session, session.history_length - 1):
                return await _gone_on(session, work, work.terms, prompt, kept)
    options = work.options.session
    bounds_history = options.kv_strategy is KvStrategy.FULL and work.terms is None
    # Who is told how far it is asks by the session's name, which the opening gives.
    is_told = work.options.stream and len(prompt) >= LONG_PROMPT_TOKENS
    session = await client.create_session(
        work.options.model,
        tokens=() if is_told else prompt,
        kv_strategy=options.kv_strategy,
        sink_tokens=options.sink_tokens,
        window_tokens=options.window_tokens,
        speculation=options.speculation,  # type: ignore[arg-type]  # checked when it was read
        client_label=LABEL,
        # One that may go on has no bound: the memory of the answer is taken with that of its
        # prompt, as the others' is, and that of later ones when it goes on.
        max_history_tokens=len(prompt) + work.max_tokens if bounds_history else 0,
        room_tokens=work.max_tokens,
        restorer=options.restorer,
        kv_quality=options.kv_quality,
        kv_quality_when_short=options.kv_quality_when_short,
        resume=True,
        traceparent=outgoing_header(),
    )
    if is_told:
        async with AsyncExitStack() as closing:
            closing.push_async_exit(session)
            with reading.by(number, session):
                await session.append(prompt, room_tokens=work.max_tokens)
            closing.pop_all()
    return _Begun(session, 0, session.prefill_seconds)


async def _gone_on(
    session: AsyncSession,
    work: Work,
    terms: SessionTerms,
    prompt: tuple[int, ...],
    kept: CallersSessions,
) -> _Begun:
    """Appends the rest of a prompt; a session for which there is no room stays kept."""
    length, moves = session.history_length, len(session.resumptions)
    async with AsyncExitStack() as closing:
        closing.push_async_exit(session)
        session.traced_by(outgoing_header())
        try:
            await session.append(prompt[length:], room_tokens=work.max_tokens)
        except OutOfKvMemory:
            closing.pop_all()
            await kept.keep(terms, session)
            raise
        closing.pop_all()
    # The last token of a history is computed with what comes behind it.
    there = length - 1
    # Opened anew it has all of it computed again, at rest what it had.
    again = session.recomputed_token_count if len(session.resumptions) == moves else there
    return _Begun(session, max(0, there - again), session.prefill_seconds)


async def _generate(begun: _Begun, work: Work, index: int, put: Put) -> None:
    session, codec, options = begun.session, work.codec, work.options
    detokenizer = codec.detokenizer(skip_special_tokens=not work.show_special)
    text = AnswerText(detokenizer, options.stops, codec.stop_token_ids)
    generated = forwards = accepted = 0
    generation = session.generate(
        work.max_tokens,
        stop_token_ids=codec.stop_token_ids,
        deadline_seconds=options.session.deadline_seconds,
        gives_way=work.terms is not None,
        **options.sampling.of_choice(index),
    )
    async with generation:
        async for tokens in generation:
            generated += len(tokens.token_ids)
            forwards += 1
            accepted += tokens.drafted_count
            if piece := text.push(tokens):
                await put(Delta(index, piece))
            if text.stopped:
                break
    done = generation.done
    if done is not None and done.stop_reason is StopReason.DRAINING:
        raise HttpRefusal(
            "DRAINING",
            f"the node {session.address} is leaving the fleet and no other could go on; ask again",
            retry_after=1.0,
        )
    if piece := text.finish():
        await put(Delta(index, piece))
    is_stopped = text.stopped or done is None
    end = End(
        index,
        stop_string=text.stop_string,
        finish_reason="stop" if is_stopped else _FINISH.get(done.stop_reason, "stop"),  # type: ignore[union-attr]
        token_count=text.token_count,
        generated_count=generated,
        forward_count=forwards,
        accepted_count=accepted,
        # A fork may have had some of the prompt to compute again.
        prefill_seconds=begun.prefill_seconds + (done.timings.prefill_seconds if done else 0.0),
        cached_count=max(0, begun.cached_count - (done.recomputed_token_count if done else 0)),
        address=session.address,
        resumptions=session.resumptions,
        done=done,
    )
    await put(end)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error that is meant for clients; the first of all when there is none."""
    expected, _rest = group.split((KakeyaError, HttpRefusal))
    error: BaseException = expected or group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
