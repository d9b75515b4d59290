"""Archives that lie, fall silent or are not there: lost for ever, by name, and counted."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedQueries
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import RestorerLost
from kakeya_fleet.node.roles.archive.adaptive_timeout import LEAST_ANSWERS, LEAST_SECONDS
from kakeya_fleet.node.roles.archive.data_connection import DataConnection, OpenConnections
from kakeya_fleet.node.roles.archive.data_frames import (
    Closed,
    Frame,
    FrameReader,
    Kind,
    extended_crc,
    parts_of,
)
from kakeya_fleet.node.roles.archive.remote_store import ArchiveWay, RemoteEvictedStore
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault
from tests.support import evicted_stores
from tests.support.patience import PATIENCE_SECONDS

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)
# For what is to be late; whatever else is wrong with an answer is found before this.
DEADLINE_SECONDS = 0.3

Change = Callable[[np.ndarray], np.ndarray]
Answer = Callable[[socket.socket, Frame], bool]
"""Sends what it likes to queries; whether the connection goes on."""


@pytest.fixture
def shape() -> EvictedShape:
    return evicted_stores.small_shape()


@pytest.fixture
def faults() -> list[RestorerFault]:
    return []


def way_to(
    port: int, faults: list[RestorerFault], deadline_seconds: float = PATIENCE_SECONDS
) -> ArchiveWay:
    return ArchiveWay(
        host="127.0.0.1",
        port=port,
        deadline_seconds=deadline_seconds,
        connections=OpenConnections(),
        on_fault=faults.append,
        on_round_trip=lambda _seconds: None,
    )


class Liar:
    """Attaches whoever comes, then answers queries with what it is told to."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        reader = FrameReader(connection)
        deposited = 0
        try:
            while True:
                frame = reader.receive()
                if frame.kind == Kind.ATTACH:
                    connection.sendall(framed(Frame(Kind.ATTACHED, serial=1)))
                elif frame.kind == Kind.DEPOSIT:
                    deposited = extended_crc(deposited, frame.body.data)
                elif not self._answer(connection, replace(frame, deposited=deposited)):
                    return
        except (Closed, OSError):
            return
        finally:
            connection.close()


@pytest.fixture
def told(request: pytest.FixtureRequest) -> Iterator[Liar]:
    liar = Liar(request.param)
    yield liar
    liar.close()


def seen_queries(shape: EvictedShape) -> EvictedQueries:
    """Of which each sees some of 20 positions that were deposited."""
    return evicted_stores.random_queries(shape, 0, 20, 3, seed=0)


def framed(head: Frame, body: bytes = b"") -> bytes:
    """A frame whose checksum is right."""
    return b"".join(map(bytes, parts_of(head, body)))


def partial_answer(told: Frame | None = None, **changes: Change) -> Answer:
    """A right answer of who sees two positions of equal scores, but for the changes."""

    def answer(connection: socket.socket, asked: Frame) -> bool:
        column = np.ones((4, asked.count), np.float32)
        fields: dict[str, np.ndarray] = {"output": np.ones((4, asked.count, 8), np.float32)}
        fields |= {"total": 2 * column, "maximum": column}
        fields |= {name: change(column) for name, change in changes.items()}
        body = b"".join(part.tobytes() for part in fields.values())
        own = replace(asked, kind=Kind.PARTIAL, number=0.0, body=np.empty(0, np.uint8))
        if told is not None:
            own = replace(
                own,
                layer=told.layer or own.layer,
                count=told.count or own.count,
                position=told.position or own.position,
                serial=told.serial or own.serial,
                deposited=told.deposited or own.deposited,
            )
        connection.sendall(framed(own, body))
        return True

    return answer


def other_bytes(connection: socket.socket, asked: Frame) -> bool:
    """An answer with one bit that is not the sender's."""
    own = replace(asked, kind=Kind.PARTIAL, number=0.0, body=np.empty(0, np.uint8))
    whole = bytearray(framed(own, bytes(4 * asked.count * 10 * 4)))
    whole[77] ^= 4
    connection.sendall(whole)
    return True


def raw_answer(data: bytes) -> Answer:
    def answer(connection: socket.socket, _asked: Frame) -> bool:
        connection.sendall(data)
        return True

    return answer


def drips(connection: socket.socket, asked: Frame) -> bool:
    """A byte now and then, each sooner than the deadline."""
    whole = framed(Frame(Kind.PARTIAL, count=asked.count), bytes(480))
    for index in range(len(whole)):
        connection.sendall(whole[index : index + 1])
        time.sleep(DEADLINE_SECONDS / 6)
    return True


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        (partial_answer(total=lambda ones: ones * np.nan), RestorerFault.NOT_FINITE),
        (partial_answer(maximum=lambda ones: ones * np.inf), RestorerFault.NOT_FINITE),
        (partial_answer(total=lambda ones: -ones), RestorerFault.NOT_FINITE),
        (partial_answer(total=lambda ones: 0 * ones), RestorerFault.IMPOSSIBLE),
        (partial_answer(total=lambda ones: 0.5 * ones), RestorerFault.IMPOSSIBLE),
        (partial_answer(total=lambda ones: 99 * ones), RestorerFault.IMPOSSIBLE),
        (partial_answer(maximum=lambda ones: -1e30 * ones), RestorerFault.IMPOSSIBLE),
        (partial_answer(Frame(0, layer=2)), RestorerFault.MISMATCHED),
        (partial_answer(Frame(0, position=21)), RestorerFault.MISMATCHED),
        (partial_answer(Frame(0, count=4)), RestorerFault.MISMATCHED),
        (partial_answer(Frame(0, serial=1)), RestorerFault.MISMATCHED),
        (partial_answer(Frame(0, deposited=7)), RestorerFault.MISMATCHED),
        (other_bytes, RestorerFault.CORRUPT),
        (partial_answer(output=lambda ones: ones), RestorerFault.PROTOCOL),
        (partial_answer(maximum=lambda ones: ones[:0]), RestorerFault.PROTOCOL),
        (raw_answer(framed(Frame(Kind.FORKED))), RestorerFault.PROTOCOL),
        (partial_answer(output=lambda ones: ones[:0]), RestorerFault.PROTOCOL),
        (raw_answer(struct.pack("<IB43x", 1 << 31, 2)), RestorerFault.PROTOCOL),
        (raw_answer(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4), RestorerFault.PROTOCOL),
        (raw_answer(framed(Frame(Kind.ERROR), b"\xff\xff\xff\xff")), RestorerFault.PROTOCOL),
        (raw_answer(b""), RestorerFault.DEADLINE),
        (raw_answer(framed(Frame(Kind.PARTIAL), bytes(480))[:20]), RestorerFault.DEADLINE),
        (drips, RestorerFault.DEADLINE),
        (lambda _connection, _asked: False, RestorerFault.UNREACHABLE),
    ],
    indirect=["told"],
)
def test_a_lying_or_silent_archive_is_lost_for_ever_and_counted(
    told: Liar, fault: RestorerFault, shape: EvictedShape, faults: list[RestorerFault]
) -> None:
    is_late = fault is RestorerFault.DEADLINE
    way = way_to(told.port, faults, DEADLINE_SECONDS if is_late else PATIENCE_SECONDS)
    store = RemoteEvictedStore(way, "1", shape, ARCHIVE)
    store.deposit(shape.sink, evicted_stores.random_evicted(shape, 20, seed=0))
    queries = seen_queries(shape)
    store.begin(queries)
    with pytest.raises(RestorerLost):
        store.finish()
    assert faults == [fault]
    assert store.lost
    with pytest.raises(RestorerLost):
        store.begin(EvictedQueries(0, 4, 1.0, queries.queries))
    store.release()
    assert faults == [fault]


def test_one_who_waits_is_told_when_the_connections_are_ended(
    shape: EvictedShape, faults: list[RestorerFault]
) -> None:
    """As when the verifier's node leaves: not after the deadline."""
    asked = threading.Event()

    def silent(_connection: socket.socket, _asked: Frame) -> bool:
        asked.set()
        return True

    liar = Liar(silent)
    connections = OpenConnections()
    way = ArchiveWay("127.0.0.1", liar.port, 60.0, connections, faults.append, lambda _: None)
    store = RemoteEvictedStore(way, "1", shape, ARCHIVE)
    store.begin(evicted_stores.random_queries(shape, 0, 4, 3, seed=0))
    asked.wait()
    ending = threading.Thread(target=connections.end)
    ending.start()
    with pytest.raises(RestorerLost):
        store.finish()
    ending.join()
    liar.close()
    assert faults == [RestorerFault.UNREACHABLE]


def test_one_that_was_quick_is_lost_sooner_than_one_that_never_answered(
    shape: EvictedShape, faults: list[RestorerFault]
) -> None:
    """So many good answers, and then none."""
    most_seconds, answers = 20.0, LEAST_ANSWERS + 8
    left = iter(range(answers))
    good = partial_answer()
    liar = Liar(lambda connection, asked: next(left, None) is None or good(connection, asked))
    way = way_to(liar.port, faults, most_seconds)
    store = RemoteEvictedStore(way, "1", shape, ARCHIVE)
    store.deposit(shape.sink, evicted_stores.random_evicted(shape, 20, seed=0))
    queries = seen_queries(shape)
    for _ in range(answers):
        store.begin(queries)
        store.finish()
    began = time.monotonic()
    store.begin(queries)
    with pytest.raises(RestorerLost) as lost:
        store.finish()
    took = time.monotonic() - began
    said = re.search(r"within (\S+) s", str(lost.value))
    assert said is not None, lost.value
    # The least where its answers were quick; some times as long as they took on a busy machine.
    assert LEAST_SECONDS <= float(said[1]) < most_seconds, lost.value
    assert took >= LEAST_SECONDS
    assert faults == [RestorerFault.DEADLINE]
    store.release()
    liar.close()


def test_a_server_that_is_not_there_is_unreachable(
    faults: list[RestorerFault], shape: EvictedShape
) -> None:
    with pytest.raises(RestorerLost):
        RemoteEvictedStore(way_to(1, faults), "1", shape, ARCHIVE)
    assert faults == [RestorerFault.UNREACHABLE]


def test_last_words_are_not_waited_for_for_ever() -> None:
    """An archive that goes on sending when nothing can be sent to it any more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = DataConnection("127.0.0.1", listener.getsockname()[1], DEADLINE_SECONDS)
        other, _ = listener.accept()

    def flood() -> None:
        with suppress(OSError):
            while True:
                other.sendall(framed(Frame(Kind.ATTACHED)) * 64)

    flooding = threading.Thread(target=flood)
    flooding.start()
    assert connection._last_words() is None
    connection.end()
    flooding.join()
    other.close()
