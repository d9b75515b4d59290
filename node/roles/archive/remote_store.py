"""An evicted store in another process, as the verifier's thread uses it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape, deposited
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec
from kakeya_fleet.engine.errors import OutOfKvMemory, RestorerLost, RestorerRefused
from kakeya_fleet.node.roles.archive.adaptive_timeout import AdaptiveTimeout
from kakeya_fleet.node.roles.archive.answer_audit import UsedAnswer
from kakeya_fleet.node.roles.archive.answer_bounds import impossible
from kakeya_fleet.node.roles.archive.archive_conversation import ArchiveConversation
from kakeya_fleet.node.roles.archive.data_connection import (
    ConnectionLost,
    DataConnection,
    MeantNode,
    OpenConnections,
)
from kakeya_fleet.node.roles.archive.data_frames import (
    BYTE_COUNTS,
    Frame,
    Kind,
)
from kakeya_fleet.node.roles.archive.partials import joined, rows_of
from kakeya_fleet.node.roles.archive.position_tags import PositionTagger
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault
from kakeya_fleet.node.roles.archive.store_audits import AuditWay, StoreAudits
from kakeya_fleet.node.roles.archive.tensor_bytes import (
    deposit_of,
    deposit_pieces,
    partial_of,
    partial_parts,
    query_pieces,
)


@dataclass(frozen=True, slots=True)
class ArchiveWay:
    """The way to the archives of one node, whose data connections are at `host` and `port`.

    No answer is waited for longer than the deadline. `on_fault` hears of every
    archive that is lost, `on_round_trip` of the seconds that each answer was
    waited for; both from the verifier's thread. `audits` is None where answers
    are not spot-checked, `meant` where the fleet has no authority.
    """

    host: str
    port: int
    deadline_seconds: float
    connections: OpenConnections
    on_fault: Callable[[RestorerFault], None]
    on_round_trip: Callable[[float], None]
    audits: AuditWay | None = None
    meant: MeantNode | None = None


class RemoteEvictedStore:
    """Deposits and queries of one session over one connection.

    Of all its positions, or of a range; see `engine.restoration.ranges.RangeStore`.
    Once lost it stays lost: what was sent and not answered may be kept or not. A
    failed deposit is told by what follows it, which raises `RestorerLost`.
    """

    def __init__(
        self,
        way: ArchiveWay,
        archive_id: str,
        shape: EvictedShape,
        spec: RestorerSpec,
        encoder: FeatureEncoder | None = None,
        origin: int = 0,
        tagger: PositionTagger | None = None,
    ) -> None:
        """Attaches to an archive that was opened for `origin`. Raises `RestorerLost`.

        A fork's has the `tagger` of its origin's.
        """
        self.archive_id = archive_id
        self._way = way
        self._shape = shape
        self._spec = spec
        self._encoder = encoder
        self._origin = origin
        self._completed = False
        self._length = 0
        self._stored_bytes = 0
        self._lost = ""
        self.fault: RestorerFault | None = None
        """Why it was lost; None while it is not, or when it was released."""
        self._tagger = tagger or PositionTagger()
        # Context vectors have no tags.
        audits = None if shape.width else way.audits
        self._audits = StoreAudits(audits, shape, origin) if audits is not None else None
        self._begun: deque[int] = deque()
        """Pieces of each `begin` that was not finished."""
        self._unsent: deque[EvictedQueries] = deque()
        self._under_way: EvictedQueries | None = None
        """At most one: so neither end ever sends to one that waits to send itself."""
        self._unwanted = False
        self._timeout = AdaptiveTimeout(way.deadline_seconds)
        self._sent_at = 0.0
        self._answers: deque[PartialAttention] = deque()
        self._conversation: ArchiveConversation | None = None
        try:
            connection = DataConnection(way.host, way.port, way.deadline_seconds, way.meant)
        except ConnectionLost as error:
            self._lose(error.fault, str(error))
        way.connections.add(connection)
        self._conversation = ArchiveConversation(connection)
        self._send(Frame(Kind.ATTACH), archive_id.encode())
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
    def origin(self) -> int:
        """The first position of its range."""
        return self._origin

    @property
    def length(self) -> int:
        """The positions of the range up to this were sent; 0 at first."""
        return self._length

    @property
    def stored_bytes(self) -> int:
        """Bytes that keep them, as the latest answer told."""
        return self._stored_bytes

    @property
    def lost(self) -> bool:
        """Whether it is lost, as far as is known. Any thread may ask."""
        return bool(self._lost)

    @property
    def audit_count(self) -> int:
        """Answers that were computed again here, and were right. Any thread may ask."""
        return self._audits.passed_count if self._audits is not None else 0

    def deposit(self, first: int, evicted: Evicted) -> None:
        """Sends final positions; see the contract for errors."""
        self._check()
        count = self._shape.check_deposit(evicted)
        if first != self._next or self._completed:
            raise ValueError(f"position {first} does not follow the {self._length} deposited")
        self._settle()
        for start, parts in deposit_pieces(self._shape, evicted):
            body = [array.data for array in deposited(parts.evicted)]
            if isinstance(parts.evicted, EvictedKeysValues):
                tags = self._tagger.tags(self._shape, first + start, parts.evicted)
                body.append(np.ascontiguousarray(tags).data)
            head = Frame(Kind.DEPOSIT, count=parts.count, position=first + start)
            self._send(head, *body)
        self._length = first + count

    def begin(self, queries: EvictedQueries) -> None:
        """Sends queries."""
        self._check()
        self._shape.check_queries(queries)
        if not self._completed:
            self._shape.check_deposited(queries, self._next)
        if self._unwanted and self._origin:
            self._settle()
        pieces = query_pieces(queries)
        self._begun.append(len(pieces))
        self._unsent.extend(pieces)
        self._send_next()

    def reserve(self, end: int) -> None:
        """Has memory kept there; see `RangeStore` for errors."""
        self._check()
        self._settle()
        self._send(Frame(Kind.RESERVE, position=end))
        frame = self._answer(Kind.RESERVED, Kind.NOT_RESERVED)
        if frame.kind == Kind.NOT_RESERVED:
            raise self._without_room(frame, "for more positions")

    def complete(self) -> None:
        """Says that the range ends where what was sent ends."""
        self._check()
        if self._length <= self._origin:
            raise ValueError("a range of no position does not end")
        self._settle()
        if not self._completed:
            self._send(Frame(Kind.COMPLETE, position=self._length))
            self._completed = True

    def finish(self, carry: PartialAttention | None = None) -> PartialAttention:
        """Waits for the answer to the oldest queries that were not asked for."""
        self._check()
        if not self._begun:
            raise ValueError("no queries were begun")
        count = self._begun.popleft()
        if self._origin:
            found = self._carried(count, carry)
        else:
            if carry is not None:
                raise ValueError("nothing is carried to the first range")
            while len(self._answers) < count:
                self._receive()
            found = [self._answers.popleft() for _ in range(count)]
        self._spot_check()
        return joined(found)

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
        self._send(Frame(Kind.FORK, position=length))
        frame = self._answer(Kind.FORKED, Kind.NOT_FORKED)
        if frame.kind == Kind.NOT_FORKED:
            raise self._without_room(frame, "for a fork")
        archive_id = frame.body.tobytes().decode("ascii", "replace")
        forked = RemoteEvictedStore(
            self._way,
            archive_id,
            self._shape,
            self._spec,
            self._encoder,
            self._origin,
            self._tagger,
        )
        forked._completed = self._completed and length >= self._length
        return forked

    def release(self) -> None:
        """Ends the connection, and the archive with it."""
        self._lost = self._lost or "it was released"
        self._end()

    @property
    def _next(self) -> int:
        """The position that is deposited next."""
        return max(self._length, self._origin, self._shape.sink)

    def _carried(self, count: int, carry: PartialAttention | None) -> list[PartialAttention]:
        """The answers to `count` pieces, each with its queries' part of `carry`."""
        found: list[PartialAttention] = []
        first = 0
        for _ in range(count):
            asked = self._under_way
            if asked is None:
                raise ValueError("the queries to carry something to are not under way")
            end = first + asked.queries.shape[1]
            own = None if carry is None else rows_of(carry, first, end)
            self._carry(asked, own)
            self._receive(own)
            found.append(self._answers.popleft())
            first = end
        return found

    def _carry(self, asked: EvictedQueries, carry: PartialAttention | None) -> None:
        parts = partial_parts(carry) if carry is not None else ()
        count = asked.queries.shape[1]
        head = Frame(Kind.CARRY, layer=asked.layer, count=count, position=asked.first)
        self._send(head, *(part.data for part in parts))

    def _send_next(self) -> None:
        if self._under_way is not None or not self._unsent:
            return
        piece = self._under_way = self._unsent.popleft()
        values = piece.queries
        count = values.shape[1]
        head = Frame(Kind.QUERIES, piece.layer, count, piece.scaling, piece.first)
        self._send(head, values.data)
        self._sent_at = time.perf_counter()

    def _receive(self, carry: PartialAttention | None = None) -> None:
        """Takes the answer to what is under way, on top of `carry`, and sends what comes next."""
        frame = self._answer(Kind.PARTIAL, within=self._timeout.seconds)
        if not self._unwanted:
            # One that nobody waited for lay there for as long as the session paused.
            self._timeout.observe(time.perf_counter() - self._sent_at)
        asked, self._under_way = self._under_way, None
        if asked is not None and not self._unwanted:
            found = self._taken(frame, asked)
            self._answers.append(found)
            if self._audits is not None:
                last = asked.first + asked.queries.shape[1] - 1
                seen = min(self._seen_end, self._shape.evicted_end(last))
                self._audits.answered(UsedAnswer(asked, carry, found, seen))
        self._unwanted = False
        self._send_next()

    @property
    def _seen_end(self) -> int:
        """Where what queries may see here, and in the ranges before, ends."""
        return self._length if self._completed else self._shape.context_length

    def _taken(self, frame: Frame, asked: EvictedQueries) -> PartialAttention:
        """The numbers of an answer; loses the archive for such as cannot be."""
        heads, count, head_dim = asked.queries.shape
        try:
            found = partial_of(frame.body, (heads, count, head_dim))
        except ValueError as error:
            self._lose(RestorerFault.PROTOCOL, str(error))
        except RestorerRefused as error:
            self._lose(RestorerFault.NOT_FINITE, str(error))
        fault = impossible(self._shape, asked, self._seen_end, found)
        if fault:
            self._lose(RestorerFault.IMPOSSIBLE, f"an answer cannot be: {fault}")
        return found

    def _spot_check(self) -> None:
        """Reads a piece back when one is due and nothing else is under way; compares in the end."""
        audits = self._audits
        if audits is None or self._under_way is not None:
            return
        due = audits.due()
        if not due:
            return
        layer = audits.layer
        self._send(Frame(Kind.READ, layer=layer, count=len(due), position=due.start))
        frame = self._answer(Kind.KEPT)
        shape = self._shape.layer_shape(layer)
        try:
            evicted, tags = deposit_of(shape, len(due), frame.body)
        except RestorerRefused as error:
            self._lose(RestorerFault.PROTOCOL, f"an archive gave back something else: {error}")
        if not isinstance(evicted, EvictedKeysValues):
            raise TypeError("what has no tags is not audited")
        if not self._tagger.fit(shape, due.start, evicted, tags):
            audits.failed()
            self._lose(
                RestorerFault.ALTERED,
                f"the keys and values of layer {layer} from position {due.start} on are not those"
                " that were deposited",
            )
        if not audits.add(evicted):
            self._lose(RestorerFault.FALSE_ANSWER, f"it gave a false answer in layer {layer}")

    def _settle(self) -> None:
        """Leaves nothing under way."""
        while self._under_way is not None:
            if self._origin:
                if not self._unwanted:
                    raise ValueError("behind queries comes what is carried to them")
                self._carry(self._under_way, None)
            self._receive()

    def _send(self, head: Frame, *body: bytes | memoryview) -> None:
        try:
            self._live().send(head, *body)
        except ConnectionLost as error:
            self._lose(error.fault, str(error))

    def _answer(self, *kinds: Kind, within: float | None = None) -> Frame:
        """The next answer; loses the archive unless it comes in time and is to what was asked."""
        began = time.perf_counter()
        try:
            frame = self._live().answer(*kinds, within=within)
        except ConnectionLost as error:
            self._lose(error.fault, str(error))
        if frame.kind != Kind.KEPT:
            self._way.on_round_trip(time.perf_counter() - began)
        self._stored_bytes = frame.stored_bytes
        return frame

    def _without_room(self, frame: Frame, purpose: str) -> OutOfKvMemory:
        """What the figures of a refusal say."""
        if len(frame.body) != BYTE_COUNTS.size:
            self._lose(RestorerFault.PROTOCOL, "it refused without figures")
        needed, free = BYTE_COUNTS.unpack(frame.body.data)
        return OutOfKvMemory(
            f"the archive has no room {purpose}: {needed} bytes are needed, {free} are free",
            needed_bytes=str(needed),
            free_bytes=str(free),
        )

    def _lose(self, fault: RestorerFault, words: str) -> NoReturn:
        """Ends the store for ever, and tells."""
        self._lost = words
        self.fault = fault
        self._way.on_fault(fault)
        self._end()
        raise self._error(fault=fault.value)

    def _end(self) -> None:
        self._begun.clear()
        self._unsent.clear()
        self._answers.clear()
        if self._audits is not None:
            self._audits.release()
        if self._conversation is not None:
            self._conversation.end()

    def _check(self) -> None:
        if self._lost:
            raise self._error()

    def _live(self) -> ArchiveConversation:
        if self._conversation is None:
            raise self._error()
        return self._conversation

    def _error(self, **metadata: str) -> RestorerLost:
        return RestorerLost(f"the session's archive was lost: {self._lost}", **metadata)
