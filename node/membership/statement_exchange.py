"""Statements of whom the fleet trusts, between two members."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

import grpc.aio
import structlog

from kakeya.rpc_status import kakeya_error
from kakeya.v1 import trust_pb2, trust_pb2_grpc
from kakeya_fleet.fleet.errors import StatementRejected
from kakeya_fleet.fleet.trust.statements import Statement
from kakeya_fleet.node.membership.peers import Peers
from kakeya_fleet.node.rpc.closed_channels import closed_under_call
from kakeya_fleet.node.trust.statement_wire import statement_from_wire, statement_to_wire
from kakeya_fleet.node.trust.trust import Trust
from kakeya_fleet.node.watch.background import BackgroundTasks

MOST_ANSWER_BYTES = 512 * 1024
"""Of statements in one message; what does not fit comes the next time."""
MOST_IN_A_MESSAGE = 1024
SECONDS = 2.0
CLOSED = "the channel was closed under the call"

_log = structlog.get_logger(__name__)


class StatementExchange:
    """Brings this node and others to the same statements. Belongs to one event loop."""

    def __init__(self, trust: Trust, peers: Peers, tasks: BackgroundTasks) -> None:
        self._trust = trust
        self._peers = peers
        self._tasks = tasks

    def differs(self, address: str, node_id: str, trust_hash: bytes) -> None:
        """Told of each exchange: asks where the other node knows something else."""
        if trust_hash != self._trust.ledger.root_hash():
            self._tasks.once("statements", partial(self._ask, address, node_id))

    async def _ask(self, address: str, node_id: str) -> None:
        await self.exchange(address, node_id)

    async def exchange(self, address: str, node_id: str) -> bool:
        """Sends all, takes what is new; whether the node answered."""
        statements = self._trust.ledger.statements
        request = trust_pb2.ExchangeStatementsRequest(
            known=[each.digest for each in statements],
            statements=map(statement_to_wire, within(statements, MOST_ANSWER_BYTES)),
        )
        return await self._send(self._peers.channel(address, node_id), address, request)

    async def take_from(self, channel: grpc.aio.Channel, address: str) -> None:
        """Takes what is new there, and tells nothing but what is known here."""
        request = trust_pb2.ExchangeStatementsRequest(
            known=[each.digest for each in self._trust.ledger.statements]
        )
        await self._send(channel, address, request)

    async def _send(
        self, channel: grpc.aio.Channel, address: str, request: trust_pb2.ExchangeStatementsRequest
    ) -> bool:
        stub = trust_pb2_grpc.TrustServiceStub(channel)
        try:
            answer = await stub.ExchangeStatements(request, timeout=SECONDS)
        except grpc.aio.AioRpcError as error:
            fault = kakeya_error(error, address)
            _log.debug("statements_not_exchanged", address=address, reason=fault.reason)
            return False
        except asyncio.CancelledError:
            if not closed_under_call():
                raise
            _log.debug("statements_not_exchanged", address=address, reason=CLOSED)
            return False
        self.take(answer.statements)
        return True

    def answer(
        self, request: trust_pb2.ExchangeStatementsRequest
    ) -> trust_pb2.ExchangeStatementsResponse:
        """Takes what is new, and gives what the caller lacks."""
        self.take(request.statements)
        known = set(request.known) | {each.digest for each in self._decoded(request.statements)}
        lacking = [each for each in self._trust.ledger.statements if each.digest not in known]
        return trust_pb2.ExchangeStatementsResponse(
            statements=map(statement_to_wire, within(lacking, MOST_ANSWER_BYTES))
        )

    def take(self, messages: Iterable[trust_pb2.Statement]) -> None:
        """Merges what can be; one that cannot be read costs none of the others."""
        try:
            self._trust.merge(self._decoded(messages))
        except StatementRejected as error:
            _log.warning("statements_rejected", cause=str(error))

    def _decoded(self, messages: Iterable[trust_pb2.Statement]) -> list[Statement]:
        found = []
        for message in messages:
            try:
                found.append(statement_from_wire(message, self._trust.fleet.fleet_id))
            except StatementRejected as error:
                _log.warning("statement_skipped", cause=str(error))
        return found


def within(statements: Iterable[Statement], most_bytes: int) -> list[Statement]:
    """The first of them that have so many bytes together at most, and fit one message."""
    found: list[Statement] = []
    size = 0
    for statement in statements:
        size += len(statement.body) + len(statement.signature) + 128
        if size > most_bytes or len(found) == MOST_IN_A_MESSAGE:
            break
        found.append(statement)
    return found
