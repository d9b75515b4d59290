"""An evicted store in another process, as the verifier's thread uses it."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from engine.errors import OutOfKvMemory, RestorerLost, RestorerRefused
from engine.features import FeatureEncoder
from engine.restoration.contract import (
    Evicted,
    EvictedQueries,
    PartialAttention,
)
from engine.restoration.shape import EvictedShape
from engine.restoration.specification import RestorerSpec
from kakeya.v1 import archive_pb2 as wire
from kakeya.v1.archive_pb2_grpc import ArchiveServiceStub
from node.archive.partials import joined
from node.archive.patience import Patience
from node.archive.restorer_fault import RestorerFault, fault_of
from node.archive.tensor_bytes import deposit_messages, partial_from_wire, query_messages


@dataclass(frozen=True, slots=True)
class ArchiveWay:
    """The way to one node's archives.

    `on_fault` hears of every archive that is lost, `on_round_trip` of the
    seconds that each answer was waited for; both from the verifier's thread.
    """

    stub: ArchiveServiceStub
    patience: Patience
    on_fault: Callable[[RestorerFault], None]
    on_round_trip: Callable[[float], None]


class RemoteEvictedStore:
    """Deposits and queries of one session over one stream.

    Once lost it stays lost: what was sent and not answered may be kept or not.
    A failed deposit is told by the next `finish`, which raises `RestorerLost`.
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
        self._begun: deque[list[tuple[int, int, int]]] = deque()
        self._unwanted = 0
        self._requests: queue.SimpleQueue[wire.UseArchiveRequest | None] = queue.SimpleQueue()
        self._call = way.stub.UseArchive(iter(self._requests.get, None))
        self._send(wire.UseArchiveRequest(attach=wire.AttachArchive(archive_id=archive_id)))
        self._length = self._answer("attached").attached.length

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
        for message in deposit_messages(self._shape, first, evicted):
            self._send(message)
        self._length = first + count

    def begin(self, queries: EvictedQueries) -> None:
        """Sends queries."""
        self._check()
        self._shape.check_queries(queries)
        self._shape.check_deposited(queries, self._length)
        heads, _, head_dim = queries.queries.shape
        pieces = query_messages(queries)
        for _, message in pieces:
            self._send(message)
        self._begun.append([(heads, count, head_dim) for count, _ in pieces])

    def finish(self) -> PartialAttention:
        """Waits for the answer to the oldest queries that were not asked for."""
        self._check()
        if not self._begun:
            raise ValueError("no queries were begun")
        self._drop_unwanted()
        return joined([self._partial(sizes) for sizes in self._begun.popleft()])

    def abandon(self) -> None:
        """Drops the answers that are on their way."""
        self._unwanted += sum(map(len, self._begun))
        self._begun.clear()

    def fork(self, length: int) -> RemoteEvictedStore:
        """An archive beside this one; see the contract for errors."""
        self._check()
        self.abandon()
        self._drop_unwanted()
        self._send(wire.UseArchiveRequest(fork=wire.ForkArchive(length=length)))
        forked = self._answer("forked").forked
        if not forked.archive_id:
            raise OutOfKvMemory(
                f"the archive has no room for a fork of {forked.needed_bytes} bytes",
                needed_bytes=str(forked.needed_bytes),
                free_bytes=str(forked.free_bytes),
            )
        return RemoteEvictedStore(
            self._way, forked.archive_id, self._shape, self._spec, self._encoder
        )

    def release(self) -> None:
        """Ends the stream, and the archive with it."""
        self._lost = self._lost or "it was released"
        self._end()

    def _send(self, message: wire.UseArchiveRequest) -> None:
        self._requests.put(message)

    def _partial(self, sizes: tuple[int, int, int]) -> PartialAttention:
        message = self._answer("partial").partial
        self._stored_bytes = message.stored_bytes
        try:
            return partial_from_wire(message, sizes)
        except ValueError as error:
            raise self._lose(RestorerFault.PROTOCOL, str(error)) from error
        except RestorerRefused as error:
            raise self._lose(RestorerFault.NOT_FINITE, str(error)) from error

    def _drop_unwanted(self) -> None:
        while self._unwanted:
            self._answer("partial")
            self._unwanted -= 1

    def _answer(self, kind: str) -> wire.UseArchiveResponse:
        """The next answer; loses the archive unless it comes in time and is of that kind."""
        patience = self._way.patience
        began = time.perf_counter()
        patience.begin(self, self._call.cancel)
        try:
            response = next(self._call)
        except StopIteration:
            raise self._lose(RestorerFault.PROTOCOL, "it ended the stream") from None
        except grpc.RpcError as error:
            if not patience.end(self):
                words = f"it did not answer within {patience.seconds:g} s"
                raise self._lose(RestorerFault.DEADLINE, words) from error
            raise self._lose(*fault_of(error)) from error
        finally:
            patience.end(self)
        self._way.on_round_trip(time.perf_counter() - began)
        if response.WhichOneof("kind") != kind:
            raise self._lose(RestorerFault.PROTOCOL, f"it answered without {kind}")
        return response

    def _lose(self, fault: RestorerFault, words: str) -> RestorerLost:
        """Ends the store for ever; the error that tells."""
        self._lost = words
        self._way.on_fault(fault)
        self._end()
        return self._error(fault=fault.value)

    def _end(self) -> None:
        self._begun.clear()
        self._call.cancel()
        # Otherwise the thread that sends would wait for more, for ever.
        self._requests.put(None)

    def _check(self) -> None:
        if self._lost:
            raise self._error()

    def _error(self, **metadata: str) -> RestorerLost:
        return RestorerLost(f"the session's archive was lost: {self._lost}", **metadata)
