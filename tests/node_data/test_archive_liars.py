"""Archives that lie, fall silent or are not there: lost for ever, by name, and counted."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import grpc
import numpy as np
import pytest

from engine.errors import RestorerLost
from engine.restoration.contract import EvictedQueries
from engine.restoration.shape import EvictedShape
from engine.restoration.specification import RestorerKind, RestorerSpec
from kakeya.v1 import archive_pb2 as wire
from kakeya.v1.archive_pb2_grpc import ArchiveServiceServicer, ArchiveServiceStub
from kakeya.v1.archive_pb2_grpc import add_ArchiveServiceServicer_to_server as add_servicer
from node.archive.opening import Opening, opening_to_wire
from node.archive.patience import Patience
from node.archive.remote_store import ArchiveWay, RemoteEvictedStore
from node.archive.restorer_fault import RestorerFault, fault_of

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)


@pytest.fixture
def shape(evicted_stores: ModuleType) -> EvictedShape:
    return evicted_stores.small_shape()


@pytest.fixture
def patience() -> Iterator[Patience]:
    watching = Patience(0.3)
    yield watching
    watching.close()


@pytest.fixture
def faults() -> list[RestorerFault]:
    return []


def way_of(stub: ArchiveServiceStub, patience: Patience, faults: list[RestorerFault]) -> ArchiveWay:
    return ArchiveWay(stub, patience, faults.append, lambda _seconds: None)


class Liar(ArchiveServiceServicer):
    """Answers queries with what it is told to; nothing at all for None."""

    def __init__(self, answer: Callable[[wire.EvictedQueries], Any]) -> None:
        self._answer = answer
        self._silent: queue.SimpleQueue[None] = queue.SimpleQueue()

    def UseArchive(self, request_iterator: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        context.add_callback(lambda: self._silent.put(None))
        for request in request_iterator:
            if request.HasField("attach"):
                yield wire.UseArchiveResponse(attached=wire.ArchiveAttached())
            elif request.HasField("queries"):
                answer = self._answer(request.queries)
                if answer is None:
                    self._silent.get()
                    return
                yield answer


def partial_answer(**changes: Any) -> Callable[[wire.EvictedQueries], Any]:
    def answer(asked: wire.EvictedQueries) -> Any:
        column = np.ones((4, asked.query_count), np.float32)
        fields = {
            "output": np.ones((4, asked.query_count, 8), np.float32).tobytes(),
            "total": column.tobytes(),
            "maximum": column.tobytes(),
        }
        changed = {name: change(column) for name, change in changes.items()}
        return wire.UseArchiveResponse(partial=wire.PartialAttention(**(fields | changed)))

    return answer


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (partial_answer(total=lambda ones: (ones * np.nan).tobytes()), RestorerFault.NOT_FINITE),
        (partial_answer(maximum=lambda ones: (ones * np.inf).tobytes()), RestorerFault.NOT_FINITE),
        (partial_answer(total=lambda ones: (-ones).tobytes()), RestorerFault.NOT_FINITE),
        (partial_answer(output=lambda ones: ones.tobytes()), RestorerFault.PROTOCOL),
        (partial_answer(maximum=lambda _: b""), RestorerFault.PROTOCOL),
        (
            lambda _: wire.UseArchiveResponse(forked=wire.ArchiveForked()),
            RestorerFault.PROTOCOL,
        ),
        (lambda _: wire.UseArchiveResponse(), RestorerFault.PROTOCOL),
        (lambda _: None, RestorerFault.DEADLINE),
    ],
)
def test_a_lying_or_silent_archive_is_lost_for_ever_and_counted(
    answer: Callable[[Any], Any],
    fault: RestorerFault,
    shape: EvictedShape,
    patience: Patience,
    faults: list[RestorerFault],
    evicted_stores: ModuleType,
) -> None:
    pool = ThreadPoolExecutor(4)
    server = grpc.server(pool)
    add_servicer(Liar(answer), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = ArchiveServiceStub(channel)
        store = RemoteEvictedStore(way_of(stub, patience, faults), "1", shape, ARCHIVE)
        queries = evicted_stores.random_queries(shape, 0, 4, 3, seed=0)
        store.begin(queries)
        with pytest.raises(RestorerLost):
            store.finish()
        assert faults == [fault]
        assert store.lost
        with pytest.raises(RestorerLost):
            store.begin(EvictedQueries(0, 4, 1.0, queries.queries))
        store.release()
    server.stop(None).wait()
    pool.shutdown()
    assert faults == [fault]


def test_a_server_that_is_not_there_is_unreachable(
    patience: Patience, faults: list[RestorerFault], shape: EvictedShape
) -> None:
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        stub = ArchiveServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.OpenArchive(opening_to_wire(Opening(ARCHIVE, shape, "v")), timeout=5)
        assert fault_of(caught.value)[0] is RestorerFault.UNREACHABLE
        with pytest.raises(RestorerLost):
            RemoteEvictedStore(way_of(stub, patience, faults), "1", shape, ARCHIVE)
    assert faults[0] in (RestorerFault.UNREACHABLE, RestorerFault.DEADLINE)
