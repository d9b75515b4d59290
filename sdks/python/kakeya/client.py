"""The asynchronous client: any node of the fleet is the way in."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self, TypeVar, Unpack

from kakeya import ranges, watch_wire
from kakeya.chat import AsyncChat, only_verifier, rendering
from kakeya.connection import Connection
from kakeya.conversation import Conversation
from kakeya.credentials import Credentials, Owner, Tls
from kakeya.embedding import embed
from kakeya.errors import ModelServedElsewhere, TransportError
from kakeya.fleet_view import AsyncFleet
from kakeya.generated import wire
from kakeya.generated.values import SessionInfo, TextVector
from kakeya.history import History
from kakeya.options import ChatOptions, SessionOptions
from kakeya.place import Place, open_session
from kakeya.requests import opening_options, session_request
from kakeya.retries import RetryBudget
from kakeya.roster import Roster
from kakeya.session import AsyncSession
from kakeya.successor import Opening
from kakeya.text import TextCodec
from kakeya.timeouts import Timeouts
from kakeya.tokenizer_fetch import fetch_codec
from kakeya.v1 import runtime_pb2
from kakeya.watch_values import SessionsEvent
from kakeya.watches import AsyncWatch
from kakeya.ways import Ways

Given = TypeVar("Given")


class AsyncClient:
    """A client of one node, HOST:PORT, and through it of the fleet.

    Connects with its first call and belongs to the event loop of that call. A
    context manager that closes itself.
    """

    def __init__(
        self,
        address: str,
        *,
        timeouts: Timeouts | None = None,
        api_key: str | None = None,
        tls: Tls | None = None,
        owner: Owner | None = None,
    ) -> None:
        """`api_key` travels with every call; beyond this machine it needs `tls`.

        `owner` travels to the node at `address` alone, in place of the key. Raises
        UsageError, KeyExposed.
        """
        self._timeouts = timeouts or Timeouts()
        self._budget = RetryBudget()
        credentials = Credentials.of(api_key, tls, owner)
        self._home = Connection(address, self._timeouts, self._budget, credentials)
        self._credentials = credentials.for_others()
        self._roster = Roster(self._home, self._connect, Ways(self._credentials))
        self._codecs: dict[str, TextCodec] = {}

    def _connect(self, address: str, node_id: str) -> Connection:
        credentials = self._credentials.for_node(node_id)
        return Connection(address, self._timeouts, self._budget, credentials)

    @property
    def address(self) -> str:
        """The node that is asked first, host:port."""
        return self._home.address

    @property
    def fleet(self) -> AsyncFleet:
        """The fleet as that node sees it."""
        return AsyncFleet(self._home)

    async def create_session(self, model: str, **options: Unpack[SessionOptions]) -> AsyncSession:
        """Opens a session on a node that serves `model`; `SessionOptions` says how.

        A node that does not serve the model names one that does; the client follows once.
        Raises ModelNotFound, ModelServedElsewhere, NoPlacement, BadRequest,
        OutOfKvMemory, KvStrategyUnsupported, NoArchive, ArchiveFull,
        RestorerMismatch, TrainedForAnother, Draining, TransportError; with `tokens`
        also what `AsyncSession.append` raises.
        """
        history = ranges.token_ids("tokens", options.get("tokens", ()))
        request = session_request(model, options)
        resume = options.get("resume", False)
        traceparent = ranges.traceparent(options.get("traceparent", ""))
        place = await self._open(request, history, traceparent)
        if resume:
            # Its loss right now is noticed, and survived, with the next call.
            with suppress(TransportError):
                await self._roster.remember()
        held = History()
        held.append(history[: place.opened.history_length], place.opened.prefill_seconds)
        session = AsyncSession(place, Opening(request, self._roster), held, resumes=resume)
        if len(history) > len(held):
            async with AsyncExitStack() as closing:
                closing.push_async_exit(session)
                room = request.room_tokens
                await session.append(history[len(held) :], room_tokens=room)
                closing.pop_all()
        return session

    async def chat(self, model: str | None = None, **options: Unpack[ChatOptions]) -> AsyncChat:
        """Begins a chat with `model`, over a session of its own; `ChatOptions` says how.

        Without a model, with the one that the fleet verifies. Needs the extra
        `kakeya[text]`. Raises ChatTemplateNotFound for a model without a template, unless
        `plain`; BadRequest where the fleet verifies several models and none is named, whose
        `metadata["models"]` lists them; and what `text` and `create_session` raise.
        """
        opening = opening_options("chat", options)
        if model is None:
            model = only_verifier(await self.fleet.nodes())
        codec = await self.text(model)
        render = rendering(codec, model, options)
        opening["stop_token_ids"] = (*codec.stop_token_ids, *options.get("stop_token_ids", ()))
        opening.setdefault("resume", True)
        session = await self.create_session(model, **opening)
        conversation = Conversation(codec, render, system=options.get("system", ""))
        return AsyncChat(session, codec, conversation, options)

    async def _open(
        self,
        request: runtime_pb2.CreateSessionRequest,
        history: Sequence[int],
        traceparent: str,
    ) -> Place:
        return await self._followed(
            lambda connection: open_session(connection, request, history, traceparent)
        )

    async def _followed(self, ask: Callable[[Connection], Awaitable[Given]]) -> Given:
        """Asks home, and once more the node that home names as serving the model."""
        try:
            return await ask(self._home)
        except ModelServedElsewhere as elsewhere:
            address = self._roster.ways.named_by(elsewhere)
            if not address:
                raise
            there = self._roster.connection(address, elsewhere.node_id)
        return await ask(there)

    async def sessions(self, *, page_size: int = 100) -> AsyncIterator[SessionInfo]:
        """All sessions of the client's node, oldest first, fetched by page.

        Raises BadRequest, BadPageToken, TransportError.
        """
        size = ranges.whole("page_size", page_size, 0, ranges.MAX_PAGE_SIZE)
        request = runtime_pb2.ListSessionsRequest(page_size=size)
        while True:
            response = await self._home.unary(
                self._home.runtime.ListSessions, request, self._timeouts.unary, idempotent=True
            )
            for session in response.sessions:
                yield wire.session_info(session)
            if not response.next_page_token:
                return
            request.page_token = response.next_page_token

    async def close_session(self, session_id: str) -> int:
        """Ends a session of the client's node that is the caller's own; its history's length.

        For one that nobody holds any more: `AsyncSession.close` is for one's own. What runs in it
        ends with SessionNotFound. Raises SessionNotFound, also for another caller's; BadRequest,
        TransportError.
        """
        request = runtime_pb2.CloseSessionRequest(
            session_id=ranges.name("session_id", session_id), request_id=secrets.token_hex(16)
        )
        response = await self._home.unary(
            self._home.runtime.CloseSession, request, self._timeouts.unary, idempotent=True
        )
        return response.history_length

    async def text(self, model: str) -> TextCodec:
        """The tokenizer and chat template of `model`, from a node that serves it.

        Needs the extra `kakeya[text]`. Every file is checked and kept below
        `$XDG_CACHE_HOME/kakeya/tokenizers`, so that it travels once. Raises
        ModelNotFound, ModelServedElsewhere, TokenizerNotFound (served without one),
        TokenizerMismatch, TextExtraMissing, TransportError.
        """
        return await self._followed(lambda connection: fetch_codec(connection, model, self._codecs))

    async def embed(
        self, model: str, token_ids: Sequence[int], *, traceparent: str = ""
    ) -> TextVector:
        """A text of `model`'s token ids as one vector of length 1, from a node that serves it.

        The mean of the model's last hidden states over all ids. Sent again when the network
        failed. Raises EmptyAppend, TokenOutOfVocabulary, ContextExceeded, ModelNotFound,
        ModelServedElsewhere, OutOfKvMemory, TooManySessions, Draining, BadRequest, TransportError.
        """
        ids = ranges.token_ids("token_ids", token_ids)
        header = ranges.traceparent(traceparent)
        return await self._followed(lambda connection: embed(connection, model, ids, header))

    def watch_sessions(self, *, block_count: int = 64) -> AsyncWatch[SessionsEvent]:
        """What the sessions of the client's node do, until the iteration is left.

        A `SessionsSnapshot` with the latest `block_count` blocks of each (at most 256)
        first; then a `SessionActivity` whenever a session did something, at most ten
        times a second, and an `EndedSession` when it ended. The iteration raises
        WatcherTooSlow, TransportError; this call BadRequest.
        """
        count = ranges.whole("block_count", block_count, 0, ranges.MAX_WATCHED_BLOCKS)
        return AsyncWatch(
            self._home,
            lambda: self._home.runtime.WatchSessions,
            runtime_pb2.WatchSessionsRequest(block_count=count, in_parts=True),
            watch_wire.SessionsEvents(),
            watch_wire.has_more,
        )

    async def close(self) -> None:
        """Cancels what runs and closes the channels; a second close does nothing.

        Sessions stay on their nodes until they are closed or idle for too long.
        """
        await self._roster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
