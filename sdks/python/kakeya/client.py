"""The asynchronous client: any node of the fleet is the way in."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Literal, Self, TypeAlias

from kakeya import wire
from kakeya.connection import Connection
from kakeya.errors import BadRequest, ModelServedElsewhere
from kakeya.fleet_view import AsyncFleet
from kakeya.plan_values import AttendAt, KvStrategy, RestorerKind
from kakeya.retries import RetryBudget
from kakeya.session import AsyncSession
from kakeya.timeouts import Timeouts
from kakeya.v1 import runtime_pb2
from kakeya.values import SessionInfo, Speculation

SpeculationChoice: TypeAlias = Literal["auto", "off"] | Speculation


class AsyncClient:
    """A client of one node, HOST:PORT, and through it of the fleet.

    Connects with its first call and belongs to the event loop of that call. A
    context manager that closes itself.
    """

    def __init__(self, address: str, *, timeouts: Timeouts | None = None) -> None:
        self._timeouts = timeouts or Timeouts()
        self._budget = RetryBudget()
        self._home = Connection(address, self._timeouts, self._budget)
        self._connections = {address: self._home}

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
        kv_strategy: KvStrategy | str = KvStrategy.SINK_WINDOW,
        sink_tokens: int | None = None,
        window_tokens: int | None = None,
        stop_token_ids: Sequence[int] = (),
        speculation: SpeculationChoice = "auto",
        label: str = "",
        request_id: str | None = None,
        max_history_tokens: int = 0,
        restorer: RestorerKind | str | None = None,
        restorer_model: str = "",
        restorer_node_id: str = "",
        attend: AttendAt | str | None = None,
    ) -> AsyncSession:
        """Opens a session with an empty history on a node that serves `model`.

        A node that does not serve the model names one that does; the client
        follows once. `sink_tokens` and `window_tokens` are positions that stay
        resident (the node's defaults: 4 and 1,024); `max_history_tokens` bounds
        a session of kv_strategy "full", 0 for the model's context length.
        `speculation` is "auto" (the planner pairs a proposer when it pays),
        "off", or a fixed `Speculation`. The same `request_id` within ten minutes
        gives the same session, so that a retry opens no second one; None makes
        one up.

        With kv_strategy "restored" evicted positions stay within reach:
        `restorer` is "archive" (the default: another node keeps them, exact),
        "projection" (a learned map makes them of a smaller vector each; of the
        drafter `restorer_model`, or that which is shipped for the verifier), or
        "identity", a check of the plumbing. `restorer_node_id` names the
        archive's node; empty for the nearest with room. `attend` is "archive" (the
        default: the archive computes, and little travels) or "verifier", which then
        reads keys and values back in each step.

        Raises ModelNotFound, ModelServedElsewhere, NoPlacement, BadRequest,
        OutOfKvMemory, KvStrategyUnsupported, NoArchive, ArchiveFull,
        RestorerMismatch, TrainedForAnother, Draining, TransportError.
        """
        request = wire.build(
            lambda: runtime_pb2.CreateSessionRequest(
                model_id=model,
                kv_strategy=wire.kv_strategy_number(kv_strategy),
                sink_tokens=sink_tokens,
                window_tokens=window_tokens,
                stop_token_ids=stop_token_ids,
                speculation=_speculation(speculation),
                client_label=label,
                request_id=secrets.token_hex(16) if request_id is None else request_id,
                max_history_tokens=max_history_tokens,
                restorer=wire.restorer(restorer, restorer_model, restorer_node_id, attend),
            )
        )
        connection = self._home
        try:
            opened = await self._create(connection, request)
        except ModelServedElsewhere as elsewhere:
            if not elsewhere.address:
                raise
            connection = self._connection(elsewhere.address)
            opened = await self._create(connection, request)
        return AsyncSession(connection, opened, opened.session_id)

    async def _create(
        self, connection: Connection, request: runtime_pb2.CreateSessionRequest
    ) -> runtime_pb2.CreateSessionResponse:
        return await connection.unary(
            connection.runtime.CreateSession,
            request,
            self._timeouts.unary,
            idempotent=bool(request.request_id),
        )

    def _connection(self, address: str) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(address, self._timeouts, self._budget)
        return self._connections[address]

    async def sessions(self, *, page_size: int = 100) -> AsyncIterator[SessionInfo]:
        """All sessions of the client's node, oldest first, fetched by page.

        Raises BadRequest, BadPageToken, TransportError.
        """
        request = wire.build(lambda: runtime_pb2.ListSessionsRequest(page_size=page_size))
        while True:
            response = await self._home.unary(
                self._home.runtime.ListSessions, request, self._timeouts.unary, idempotent=True
            )
            for session in response.sessions:
                yield wire.session_info(session)
            if not response.next_page_token:
                return
            request.page_token = response.next_page_token

    async def close(self) -> None:
        """Cancels what runs and closes the channels; a second close does nothing.

        Sessions stay on their nodes until they are closed or idle for too long.
        """
        for connection in self._connections.values():
            await connection.close()

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
                block_size=choice.block_size,
            )
        case "auto":
            return runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_AUTO)
        case "off":
            return runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF)
        case other:
            raise BadRequest(f"speculation is 'auto', 'off' or a Speculation, not {other!r}")
