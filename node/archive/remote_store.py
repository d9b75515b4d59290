"""An evicted store in another process, as the verifier's thread uses it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from engine.errors import OutOfKvMemory, RestorerLost, RestorerRefused
from engine.features import FeatureEncoder
from engine.restoration.contract import (
    Evicted,
    EvictedQueries,
    PartialAttention,
)
from engine.restoration.shape import EvictedShape
from engine.restoration.specification import RestorerSpec
from node.archive.data_connection import ConnectionLost, DataConnection, OpenConnections
from node.archive.data_frames import BYTE_COUNTS, Frame, Kind, header
from node.archive.partials import joined
from node.archive.restorer_fault import RestorerFault
from node.archive.tensor_bytes import deposit_pieces, partial_of, query_pieces


@dataclass(frozen=True, slots=True)
class ArchiveWay:
    """The way to the archives of one node, whose data connections are at `host` and `port`.

    No answer is waited for longer than the deadline. `on_fault` hears of every
    archive that is lost, `on_round_trip` of the seconds that each answer was
    waited for; both from the verifier's thread.
    """

    host: str
    port: int
    deadline_seconds: float
    connections: OpenConnections
    on_fault: Callable[[RestorerFault], None]
    on_round_trip: Callable[[float], None]


class RemoteEvictedStore:
    """Deposits and queries of one session over one connection.

    Once lost it stays lost: what was sent and not answered may be kept or not.
    A failed deposit is told by what follows it, which raises `RestorerLost`.
    """

    def __init__(
        self,
        way: ArchiveWay,
        archive_id: str,
        shape: EvictedShape,
        spec: RestorerSpec,
        encoder: FeatureEncoder | None = None,
    ) -> None:
        """Attaches to an open archive. Raises `RestorerLost`."""
        self._way = way
        self._shape = shape
        self._spec = spec
        self._encoder = encoder
        self._length = 0
        self._stored_bytes = 0
        self._lost = ""
        self._begun: deque[int] = deque()
        """Pieces of each `begin` that was not finished."""
        self._unsent: deque[EvictedQueries] = deque()
        self._under_way: EvictedQueries | None = None
        """At most one: so neither end ever sends to one that waits to send itself."""
        self._unwanted = False
        self._answers: deque[PartialAttention] = deque()
        self._connection: DataConnection | None = None
        try:
            self._connection = DataConnection(way.host, way.port, way.deadline_seconds)
        except ConnectionLost as error:
            self._lose(error.fault, str(error))
        way.connections.add(self._connection)
        name = archive_id.encode()
        self._send(header(Kind.ATTACH, len(name)), name)
        self._length = self._answer(Kind.ATTACHED).position

    @property
    def spec(self) -> RestorerSpec:
        """Which restorer."""
        return self._spec

    @property
    def encoder(self) -> FeatureEncoder | None:
        """Makes the context vectors that are deposited."""
        return self._encoder

    @property
    def length(self) -> int:
        """The positions from `sink` to this were sent."""
        return self._length

    @property
    def stored_bytes(self) -> int:
        """Bytes that keep them, as the latest answer told."""
        return self._stored_bytes

    @property
    def lost(self) -> bool:
        """Whether it is lost, as far as is known. Any thread may ask."""
        return bool(self._lost)

    def deposit(self, first: int, evicted: Evicted) -> None:
        """Sends final positions; see the contract for errors."""
        self._check()
        count = self._shape.check_deposit(evicted)
        if first != max(self._length, self._shape.sink):
            raise ValueError(f"position {first} does not follow the {self._length} deposited")
        self._settle()
        for start, parts in deposit_pieces(self._shape, evicted):
            size = sum(array.nbytes for array in parts.arrays)
            told = header(Kind.DEPOSIT, size, count=parts.count, position=first + start)
            self._send(told, *(array.data for array in parts.arrays))
        self._length = first + count

    def begin(self, queries: EvictedQueries) -> None:
        """Sends queries."""
        self._check()
        self._shape.check_queries(queries)
        self._shape.check_deposited(queries, self._length)
        pieces = query_pieces(queries)
        self._begun.append(len(pieces))
        self._unsent.extend(pieces)
        self._send_next()

    def finish(self) -> PartialAttention:
        """Waits for the answer to the oldest queries that were not asked for."""
        self._check()
        if not self._begun:
            raise ValueError("no queries were begun")
        count = self._begun.popleft()
        while len(self._answers) < count:
            self._receive()
        return joined([self._answers.popleft() for _ in range(count)])

    def abandon(self) -> None:
        """Drops the queries, and the answer that is on its way."""
        self._begun.clear()
        self._unsent.clear()
        self._answers.clear()
        self._unwanted = self._under_way is not None

    def fork(self, length: int) -> RemoteEvictedStore:
        """An archive beside this one; see the contract for errors."""
        self._check()
        self.abandon()
        self._settle()
        self._send(header(Kind.FORK, position=length))
        frame = self._answer(Kind.FORKED, Kind.NOT_FORKED)
        if frame.kind == Kind.NOT_FORKED:
            if len(frame.body) != BYTE_COUNTS.size:
                self._lose(RestorerFault.PROTOCOL, "it refused a fork without figures")
            needed, free = BYTE_COUNTS.unpack(frame.body.data)
            raise OutOfKvMemory(
                f"the archive has no room for a fork of {needed} bytes",
                needed_bytes=str(needed),
                free_bytes=str(free),
            )
        archive_id = frame.body.tobytes().decode("ascii", "replace")
        return RemoteEvictedStore(self._way, archive_id, self._shape, self._spec, self._encoder)

    def release(self) -> None:
        """Ends the connection, and the archive with it."""
        self._lost = self._lost or "it was released"
        self._end()

    def _send_next(self) -> None:
        if self._under_way is not None or not self._unsent:
            return
        piece = self._under_way = self._unsent.popleft()
        values = piece.queries
        told = header(
            Kind.QUERIES,
            values.nbytes,
            layer=piece.layer,
            count=values.shape[1],
            number=piece.scaling,
            position=piece.first,
        )
        self._send(told, values.data)

    def _receive(self) -> None:
        """Takes the answer to what is under way, and sends what comes next."""
        frame, asked = self._answer(Kind.PARTIAL), self._under_way
        self._under_way = None
        self._stored_bytes = frame.position
        if asked is not None and not self._unwanted:
            heads, count, head_dim = asked.queries.shape
            try:
                self._answers.append(partial_of(frame.body, (heads, count, head_dim)))
            except ValueError as error:
                self._lose(RestorerFault.PROTOCOL, str(error))
            except RestorerRefused as error:
                self._lose(RestorerFault.NOT_FINITE, str(error))
        self._unwanted = False
        self._send_next()

    def _settle(self) -> None:
        """Leaves nothing under way."""
        while self._under_way is not None:
            self._receive()

    def _send(self, *parts: bytes | memoryview) -> None:
        try:
            self._live().send(*parts)
        except ConnectionLost as error:
            self._lose(error.fault, str(error))

    def _answer(self, *kinds: Kind) -> Frame:
        """The next answer; loses the archive unless it comes in time and is of those kinds."""
        began = time.perf_counter()
        try:
            frame = self._live().receive()
        except ConnectionLost as error:
            self._lose(error.fault, str(error))
        self._way.on_round_trip(time.perf_counter() - began)
        if frame.kind not in kinds:
            self._lose(RestorerFault.PROTOCOL, f"it answered without {kinds[0].name}")
        return frame

    def _lose(self, fault: RestorerFault, words: str) -> NoReturn:
        """Ends the store for ever, and tells."""
        self._lost = words
        self._way.on_fault(fault)
        self._end()
        raise self._error(fault=fault.value)

    def _end(self) -> None:
        self._begun.clear()
        self._unsent.clear()
        self._answers.clear()
        if self._connection is not None:
            self._connection.end()

    def _check(self) -> None:
        if self._lost:
            raise self._error()

    def _live(self) -> DataConnection:
        if self._connection is None:
            raise self._error()
        return self._connection

    def _error(self, **metadata: str) -> RestorerLost:
        return RestorerLost(f"the session's archive was lost: {self._lost}", **metadata)
