"""The asynchronous client: any node of the fleet is the way in."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Literal, Self, TypeAlias

from kakeya import activity_wire, ranges, wire
from kakeya.activity_values import SessionsEvent
from kakeya.connection import Connection
from kakeya.credentials import Credentials, Tls
from kakeya.errors import BadRequest, ModelServedElsewhere, TransportError
from kakeya.fleet_view import AsyncFleet
from kakeya.history import History
from kakeya.place import Place, open_session
from kakeya.plan_values import KvStrategy, RestorerKind
from kakeya.retries import RetryBudget
from kakeya.roster import Roster
from kakeya.session import AsyncSession
from kakeya.successor import Opening
from kakeya.text import TextCodec
from kakeya.timeouts import Timeouts
from kakeya.tokenizer_fetch import fetch_codec
from kakeya.v1 import runtime_pb2
from kakeya.values import SessionInfo, Speculation
from kakeya.watches import AsyncWatch

SpeculationChoice: TypeAlias = Literal["auto", "off"] | Speculation


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
    ) -> None:
        """`api_key` travels with every call; beyond this machine it needs `tls`.

        Raises UsageError, KeyExposed.
        """
        self._timeouts = timeouts or Timeouts()
        self._budget = RetryBudget()
        self._credentials = Credentials.of(api_key, tls)
        self._home = self._connect(address)
        self._roster = Roster(self._home, self._connect)
        self._codecs: dict[str, TextCodec] = {}

    def _connect(self, address: str) -> Connection:
        return Connection(address, self._timeouts, self._budget, self._credentials)

    @property
    def address(self) -> str:
        """The node that is asked first, host:port."""
        return self._home.address

    @property
    def fleet(self) -> AsyncFleet:
        """The fleet as that node sees it."""
        return AsyncFleet(self._home)

    async def create_session(  # noqa: PLR0913 - the fields of the request, all optional but one
        self,
        model: str,
        *,
        tokens: Sequence[int] = (),
        kv_strategy: KvStrategy | str | None = None,
        sink_tokens: int | None = None,
        window_tokens: int | None = None,
        stop_token_ids: Sequence[int] = (),
        speculation: SpeculationChoice = "auto",
        client_label: str = "",
        request_id: str | None = None,
        max_history_tokens: int = 0,
        restorer: RestorerKind | str | None = None,
        restorer_model: str = "",
        restorer_node_id: str = "",
        resume: bool = False,
    ) -> AsyncSession:
        """Opens a session on a node that serves `model`, with `tokens` as its history.

        A node that does not serve the model names one that does; the client
        follows once. The first 65,536 of `tokens` travel with the request and are
        computed before it returns, more are appended; where that fails, no session
        stays open. `sink_tokens` and `window_tokens` are positions that stay
        resident (the node's defaults: 4 and 1,024); `max_history_tokens` bounds
        a session of kv_strategy "full", and takes its memory at once; with 0 the
        memory follows the history, up to the model's context length, and an append or
        a generation that finds none raises OutOfKvMemory.
        `speculation` is "auto" (the planner pairs a proposer when it pays),
        "off", or a fixed `Speculation`. `client_label` is for lists and logs, at
        most 128 characters. The same `request_id` within ten minutes gives the same
        session, so that a retry opens no second one; None makes one up.

        `kv_strategy` None leaves it to the node: "restored" where a live archive has
        room and the verifier can use it, else "sink_window"; the session's
        `kv_strategy` tells. With "restored" evicted positions stay within reach:
        `restorer` is "archive" (the default: another node keeps them, exact),
        "projection" (a learned map makes them there, of a smaller vector each; of the
        drafter `restorer_model`, or that which is shipped for the verifier), or
        "identity", a check of the plumbing. `restorer_node_id` names the
        archive's node; empty for the nearest with room.

        With `resume` the session outlives its node: when that is lost (unreachable,
        silent, draining, its group broken), another live node that serves the same
        weights opens it with the same history, and the tokens go on as the same
        stream; `AsyncSession.resumptions` tells of it. A session that its node has
        forgotten (evicted, or gone with a restart) is opened there again. The fleet is
        looked at now, so that the loss of the client's node does not end the session.

        Raises ModelNotFound, ModelServedElsewhere, NoPlacement, BadRequest,
        OutOfKvMemory, KvStrategyUnsupported, NoArchive, ArchiveFull,
        RestorerMismatch, TrainedForAnother, Draining, TransportError; with `tokens`
        also what `AsyncSession.append` raises.
        """
        history = ranges.token_ids("tokens", tokens)
        request = wire.build(
            lambda: runtime_pb2.CreateSessionRequest(
                model_id=model,
                kv_strategy=wire.kv_strategy_number(kv_strategy),
                sink_tokens=ranges.optional_whole("sink_tokens", sink_tokens, 0),
                window_tokens=ranges.optional_whole("window_tokens", window_tokens, 1),
                stop_token_ids=ranges.stop_token_ids(stop_token_ids),
                speculation=_speculation(speculation),
                client_label=ranges.name("client_label", client_label),
                request_id=secrets.token_hex(16)
                if request_id is None
                else ranges.name("request_id", request_id),
                max_history_tokens=ranges.whole("max_history_tokens", max_history_tokens, 0),
                restorer=wire.restorer(restorer, restorer_model, restorer_node_id),
            )
        )
        place = await self._open(request, history)
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
                await session.append(history[len(held) :])
                closing.pop_all()
        return session

    async def _open(
        self, request: runtime_pb2.CreateSessionRequest, history: Sequence[int]
    ) -> Place:
        try:
            return await open_session(self._home, request, history)
        except ModelServedElsewhere as elsewhere:
            if not elsewhere.address:
                raise
            there = self._roster.connection(elsewhere.address)
        return await open_session(there, request, history)

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

    async def text(self, model: str) -> TextCodec:
        """The tokenizer and chat template of `model`, from a node that serves it.

        Needs the extra `kakeya[text]`. Every file is checked and kept below
        `$XDG_CACHE_HOME/kakeya/tokenizers`, so that it travels once. Raises
        ModelNotFound, ModelServedElsewhere, TokenizerNotFound (served without one),
        TokenizerMismatch, TextExtraMissing, TransportError.
        """
        try:
            return await fetch_codec(self._home, model, self._codecs)
        except ModelServedElsewhere as elsewhere:
            if not elsewhere.address:
                raise
            there = self._roster.connection(elsewhere.address)
        return await fetch_codec(there, model, self._codecs)

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
            runtime_pb2.WatchSessionsRequest(block_count=count),
            activity_wire.sessions_event,
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


def _speculation(choice: SpeculationChoice) -> runtime_pb2.Speculation:
    match choice:
        case Speculation():
            return runtime_pb2.Speculation(
                mode=runtime_pb2.SPECULATION_MODE_FIXED,
                proposer_node_id=choice.node_id,
                proposer_model_id=choice.proposer_model,
                block_size=ranges.whole(
                    "speculation.block_size", choice.block_size, 0, ranges.MAX_DRAFTED_TOKENS
                ),
            )
        case "auto":
            return runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_AUTO)
        case "off":
            return runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF)
        case other:
            raise BadRequest(
                f"speculation is 'auto', 'off' or a Speculation, not {other!r}",
                metadata={"field": "speculation"},
            )
