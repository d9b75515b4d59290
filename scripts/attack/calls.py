"""Mutated requests of every call over gRPC, one caller each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from scripts.attack.methods import LEAVE, Method, all_methods
from scripts.attack.mutations import Mutator, disordered
from scripts.attack.seeds import Seeds, seeds_for
from scripts.attack.tally import UNNAMED, Tally

CALL_SECONDS = 2.0
STREAM_SECONDS = 0.25
"""Deadlines of calls with one answer, and of those with many: a stream that waits for more, as
most watches do, costs the node little, and this script its time."""
OVER_WHILE_WRITING = "Internal error from Core"
"""How grpc.aio tells a writer that the call is over; the server's own status is lost then."""
RENEWED_AFTER = 48
"""Calls, after which a caller opens ids of his own anew: mutated ones may have closed them."""
SWEPT_AFTER = 20 * RENEWED_AFTER
LEFT_SECONDS = 30.0
"""Of rest, after which a session is one whose opener never heard of it: his call had ended by its
deadline. What callers leave behind is no leak of the node's, and not to look like one."""
READ_OF_A_STREAM = (1, 1, 1, 3)
"""Answers, after which the caller leaves."""
STREAM_SHARE = 0.4
"""Of calls that send a stream."""
MUTATED, MUTATED_OF_A_STREAM = 0.9, 0.3
"""Of messages: those of a stream are read only up to the first that is refused."""
STAYS_OPEN, DISORDERED = 0.2, 0.2
"""Of streams: those not half-closed at once, and those whose messages come in another order."""
DETAILS = "grpc-status-details-bin"
OPENERS = {
    "CreateSession": ("CloseSession", "session_id"),
    "ForkSession": ("CloseSession", "session_id"),
    "OpenArchive": ("CloseArchive", "archive_id"),
    "OpenLink": ("CloseLink", "link_id"),
}
"""Calls that leave something behind, the call that ends it, and the field that names it."""


@dataclass(frozen=True, slots=True)
class Shot:
    """A message as it is sent."""

    content: bytes
    is_mutated: bool


class CallFuzzer:
    """Makes one call after the other, mutated, and keeps what they open from piling up."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        archives: grpc.aio.Channel,
        tally: Tally,
        rng: random.Random,
        caller: str = "anybody",
        node_id: str = "",
    ) -> None:
        """`archives` leads to where ArchiveService answers, `channel` to all others.

        `caller` is who calls, in the report, and `node_id` as which node.
        """
        self._caller = caller
        self._node_id = node_id
        self._tally = tally
        self._rng = rng
        self._mutator = Mutator(rng)
        self._channels = {"kakeya.v1.ArchiveService": archives}
        self._channel = channel
        methods = list(all_methods())
        self._methods = {method.name: method for method in methods}
        self._streams = [method for method in methods if method.sends_many]
        self._others = [method for method in methods if not method.sends_many]
        self._seeds: Seeds | None = None
        self._calls = 0

    async def once(self) -> None:
        """One call. Raises nothing that the node can cause."""
        if self._seeds is None:
            change = self._mutator.changed
            self._seeds = await seeds_for(self._channel, self._rng, change, self._node_id)
        if self._calls % RENEWED_AFTER == 0:
            await self._renew(self._seeds)
        if self._calls % SWEPT_AFTER == 0:
            await self._sweep()
        self._calls += 1
        self._tally.called(self._caller)
        kinds = self._streams if self._rng.random() < STREAM_SHARE else self._others
        await self._call(self._rng.choice(kinds), self._seeds)

    async def _call(self, method: Method, seeds: Seeds) -> None:
        if method.name == LEAVE:
            # Whatever parses here makes the node leave.
            messages = [Shot(self._mutator.unparsable(method.request), is_mutated=True)]
        else:
            share = MUTATED_OF_A_STREAM if method.sends_many else MUTATED
            messages = [self._shot(each, share) for each in seeds.of(method.name)]
        if method.sends_many and self._rng.random() < DISORDERED:
            messages = disordered(self._rng, messages)
        await self._end(method, messages)

    def _shot(self, message: Message, share: float) -> Shot:
        """The message, mutated with probability `share`."""
        if self._rng.random() >= share:
            return Shot(message.SerializeToString(), is_mutated=False)
        if self._rng.random() < 0.5:
            return Shot(self._mutator.changed(message).SerializeToString(), is_mutated=True)
        return Shot(self._mutator.mutated(message), is_mutated=True)

    async def _end(self, method: Method, messages: Sequence[Shot]) -> None:
        service = method.service
        try:
            answer = await self._answered(method, messages)
            self._tally.ended(service, "OK")
            await self._close_again(method, answer)
        except grpc.aio.AioRpcError as error:
            is_over = error.details() == OVER_WHILE_WRITING
            status = "over while writing" if is_over else error.code().name
            reason = reason_of(error)
            self._tally.ended(service, status, reason)
            if status in UNNAMED:
                words = f"{reason} {error.details()}"
                sent = messages[-1].content if messages else b""
                self._tally.without_name(method.path, status, words, sent)

    async def _answered(self, method: Method, messages: Sequence[Shot]) -> bytes:
        """The answer; empty of a call that has many."""
        multi: Any = getattr(
            self._channels.get(method.service, self._channel),
            f"{_many(method.sends_many)}_{_many(method.answers_many)}",
        )(method.path)
        seconds = STREAM_SECONDS if method.answers_many else CALL_SECONDS
        if method.sends_many:
            call = multi(self._sending(method.service, messages), timeout=seconds)
        else:
            self._tally.sent(method.service, messages[0].is_mutated)
            call = multi(messages[0].content, timeout=seconds)
        if not method.answers_many:
            answer: bytes = await call
            return answer
        most = len(messages) if method.sends_many else self._rng.choice(READ_OF_A_STREAM)
        async for _ in call:
            most -= 1
            if most <= 0:
                call.cancel()
                break
        return b""

    async def _sending(self, service: str, messages: Sequence[Shot]) -> AsyncIterator[bytes]:
        for message in messages:
            self._tally.sent(service, message.is_mutated)
            yield message.content
        if self._rng.random() < STAYS_OPEN:
            await asyncio.sleep(self._rng.random() * 0.05)

    async def _close_again(self, method: Method, answer: bytes) -> None:
        if method.name not in OPENERS:
            return
        closing, field = OPENERS[method.name]
        try:
            name = getattr(method.response.FromString(answer), field)
        except DecodeError:
            return
        await self._asked(closing, {field: name})

    async def _asked(self, name: str, fields: Mapping[str, object]) -> Message | None:
        """The answer to a right request; None when the node refuses it, which it may."""
        method = self._methods[name]
        channel = self._channels.get(method.service, self._channel)
        call: Any = channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        try:
            answer: Message = await call(method.request(**fields), timeout=4 * CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            self._tally.ended("right requests", error.code().name, reason_of(error))
            return None
        return answer

    async def _sweep(self) -> None:
        """Closes the sessions that lie open, of all callers with this one's name."""
        found: Any = await self._asked("ListSessions", {"page_size": 1000})
        for session in found.sessions if found is not None else ():
            if session.idle_seconds > LEFT_SECONDS:
                await self._asked("CloseSession", {"session_id": session.session_id})

    async def _renew(self, seeds: Seeds) -> None:
        """Opens a session, a link and an archive for the calls that come."""
        for name, field in (
            ("Session", "session_id"),
            ("Link", "link_id"),
            ("Archive", "archive_id"),
        ):
            if known := getattr(seeds, field):
                await self._asked(f"Close{name}", {field: known})
        opened: Mapping[str, tuple[str, Message]] = {
            "session_id": ("CreateSession", seeds.plain_session()),
            "link_id": ("OpenLink", seeds.link()),
            "archive_id": ("OpenArchive", seeds.archive()),
        }
        for field, (name, request) in opened.items():
            fields = {each.name: value for each, value in request.ListFields()}
            answer = await self._asked(name, fields)
            setattr(seeds, field, getattr(answer, field) if answer is not None else "")


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """The reason in its ErrorInfo; empty without one."""
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS and isinstance(value, bytes):
            return reason_in(status_pb2.Status.FromString(value))
    return ""


def reason_in(status: Any) -> str:
    """The reason in the ErrorInfo of a google.rpc.Status; empty without one."""
    info = error_details_pb2.ErrorInfo()
    return next((str(info.reason) for detail in status.details if detail.Unpack(info)), "")


def _many(many: bool) -> str:  # noqa: FBT001 the half of a name of gRPC's
    return "stream" if many else "unary"
