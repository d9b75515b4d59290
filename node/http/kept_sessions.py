"""Sessions of answered chats, with which the next turn of the same conversation goes on.

A client of HTTP sends the whole conversation each time. Where its ids begin with those of a
session that is still open, only what is new is appended, and the stream is the same, bit for bit:
a session's next token depends on the ids of its history and on nothing else (`ModelOffer.exact`).
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

from kakeya import AsyncSession, KakeyaError, ModelOffer
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.reclaiming import to_reclaim
from kakeya_fleet.node.admission.share import Cause, refusal
from kakeya_fleet.node.http.callers import CallersClients, HttpCaller
from kakeya_fleet.node.http.request_options import SessionFields

LEAST_SHARED_TOKENS = 64
"""A history that goes on otherwise after fewer is not forked: computing them takes one forward."""

_ID_BYTES = array("I").itemsize


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """What a session must have in common with the one that a request would open itself.

    `options` are without what is a generation's own.
    """

    model_id: str
    weights_digest: str
    options: SessionFields

    def serves(self, offer: ModelOffer) -> bool:
        """Whether a session of what a node offers can go on so.

        Not where drafts could change a token: so could the turns in which a prompt is computed.
        """
        return offer.exact and offer.weights_digest == self.weights_digest


class NoPlace(Exception):
    """There is no place for one more; the session is closed."""

    def __init__(self, message: str, **_metadata: str) -> None:
        super().__init__(message)


@dataclass(slots=True, eq=False)
class _Kept:
    """One session, whose history is `ids`, 4 bytes each; `client` keeps its caller's client."""

    asker: HttpCaller
    terms: SessionTerms
    session: AsyncSession
    ids: bytes
    client: AsyncExitStack
    since: float
    expiry: asyncio.TimerHandle | None = None

    @property
    def caller(self) -> str:
        return self.asker.caller

    @property
    def silent_ms(self) -> float:
        return 1000.0 * (asyncio.get_running_loop().time() - self.since)


class KeptSessions:
    """Those of all callers, each found by the one alone who had it opened.

    Their number, their ids and their time are bounded here (`HttpLimits`); their keys and values
    make way on their node at once, as the generation that came last said. Belongs to one event
    loop.
    """

    def __init__(self, clients: CallersClients, allowances: Allowances) -> None:
        self._clients = clients
        self._places = allowances.share("http.kept_sessions", NoPlace)
        self._bytes = allowances.share("http.kept_bytes", NoPlace)
        self._seconds = allowances.limits.http.kept_seconds
        self._kept: list[_Kept] = []
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, asker: HttpCaller) -> CallersSessions:
        """Those that one caller finds."""
        return CallersSessions(self, asker)

    async def take(
        self, asker: HttpCaller, terms: SessionTerms, prompt: Sequence[int]
    ) -> AsyncSession | None:
        """A session whose history begins `prompt`, and is shorter; None where none is worth having.

        It is the caller's from now on. One that goes on otherwise than `prompt` does is forked
        where they part, and stays kept. One that its node has ended opens anew where it goes on.
        """
        # The last token is always appended: with it room is taken for the answer.
        wanted = array("I", prompt[:-1]).tobytes()
        own = [each for each in self._kept if each.asker == asker and each.terms == terms]
        found = max(own, key=lambda each: shared_bytes(each.ids, wanted), default=None)
        if found is None:
            return None
        shared = shared_bytes(found.ids, wanted)
        if shared == len(found.ids):
            self._forget(found)
            await found.client.aclose()
            return found.session
        if shared < LEAST_SHARED_TOKENS * _ID_BYTES:
            return None
        # Nobody else goes on with it meanwhile, and its time begins anew.
        self._forget(found)
        return await self._forked(found, shared // _ID_BYTES)

    async def keep(self, asker: HttpCaller, terms: SessionTerms, session: AsyncSession) -> None:
        """Keeps a session whose answer has ended; closes it where there is no place."""
        client = AsyncExitStack()
        await client.enter_async_context(self._clients.client_of(asker))
        ids = array("I", session.history).tobytes()
        loop = asyncio.get_running_loop()
        self._keep(_Kept(asker, terms, session, ids, client, loop.time()))

    async def close(self) -> None:
        """Closes all."""
        for each in list(self._kept):
            self._drop(each)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _forked(self, kept: _Kept, length: int) -> AsyncSession | None:
        try:
            forked = await kept.session.fork(length)
        except KakeyaError:
            # Gone with its node, or for another's place: a new one is opened, or says why not.
            self._close(kept)
            return None
        except asyncio.CancelledError:
            self._close(kept)
            raise
        self._keep(kept)
        return forked

    def _keep(self, kept: _Kept) -> None:
        caller = kept.asker.caller
        try:
            self._make_room(kept)
            self._places.take(caller)
            try:
                self._bytes.take(caller, len(kept.ids))
            except NoPlace:
                self._places.give_back(caller)
                raise
        except NoPlace:
            self._close(kept)
            return
        loop = asyncio.get_running_loop()
        kept.since = loop.time()
        kept.expiry = loop.call_later(self._seconds, self._drop, kept)
        self._kept.append(kept)

    def _make_room(self, kept: _Kept) -> None:
        """Drops those of whoever has the most, the longest unused first."""
        caller, nbytes = kept.asker.caller, len(kept.ids)
        if refusal(self._bytes.most, 0, 0, nbytes) is not None:
            # Nobody loses his for one that has no place in all of it.
            raise self._bytes.refused(caller, Cause.FULL, nbytes)
        while self._kept and (
            self._places.would_refuse(caller) or self._bytes.would_refuse(caller, nbytes)
        ):
            for each in to_reclaim(self._kept, 1):
                self._drop(each)

    def _drop(self, kept: _Kept) -> None:
        self._forget(kept)
        self._close(kept)

    def _forget(self, kept: _Kept) -> None:
        if kept.expiry is not None:
            kept.expiry.cancel()
        self._kept.remove(kept)
        self._places.give_back(kept.asker.caller)
        self._bytes.give_back(kept.asker.caller, len(kept.ids))

    def _close(self, kept: _Kept) -> None:
        """Ends it, while others go on."""
        closing = asyncio.create_task(_closed(kept), name="http-kept-close")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


@dataclass(frozen=True, slots=True)
class CallersSessions:
    """The kept sessions of one caller."""

    _all: KeptSessions
    _asker: HttpCaller

    async def take(self, terms: SessionTerms, prompt: Sequence[int]) -> AsyncSession | None:
        """See `KeptSessions.take`."""
        return await self._all.take(self._asker, terms, prompt)

    async def keep(self, terms: SessionTerms, session: AsyncSession) -> None:
        """See `KeptSessions.keep`."""
        await self._all.keep(self._asker, terms, session)


def shared_bytes(one: bytes, other: bytes) -> int:
    """With how many bytes of whole ids both begin, of ids of 4 bytes.

    By halves, since comparing bytes takes a hundredth of what looking at each does.
    """
    same, end = 0, min(len(one), len(other)) // _ID_BYTES
    if one[: end * _ID_BYTES] == other[: end * _ID_BYTES]:
        return end * _ID_BYTES
    # The ids below `same` are the same, and of those below `end` one is not.
    while end - same > 1:
        half = (same + end) // 2
        if one[same * _ID_BYTES : half * _ID_BYTES] == other[same * _ID_BYTES : half * _ID_BYTES]:
            same = half
        else:
            end = half
    return same * _ID_BYTES


async def _closed(kept: _Kept) -> None:
    async with kept.client:
        # It ends by itself where nobody can say so: idle, and giving way.
        with suppress(KakeyaError):
            async with kept.session:
                pass
