"""How soon an archive that falls silent is found out."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import RestorerLost
from kakeya_fleet.node.roles.archive.adaptive_timeout import (
    LEAST_ANSWERS,
    LEAST_SECONDS,
    AdaptiveTimeout,
)
from kakeya_fleet.node.roles.archive.data_connection import OpenConnections
from kakeya_fleet.node.roles.archive.data_frames import Closed, FrameReader, Kind, header
from kakeya_fleet.node.roles.archive.remote_store import ArchiveWay, RemoteEvictedStore
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault
from tests.support import evicted_stores

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)
MOST_SECONDS = 6.0


def after(*seconds: float) -> float:
    patience = AdaptiveTimeout(MOST_SECONDS)
    for each in seconds:
        patience.observe(each)
    return patience.seconds


def test_it_is_the_most_until_it_is_measured() -> None:
    assert after() == MOST_SECONDS
    assert after(*[0.001] * (LEAST_ANSWERS - 1)) == MOST_SECONDS
    assert after(*[0.001] * LEAST_ANSWERS) == LEAST_SECONDS


def test_slow_archives_are_given_more_time() -> None:
    assert after(*[0.05] * 200) > 15 * 0.05
    assert after(*[3.0] * 200) == MOST_SECONDS
    # It is felt at once when answers become slow, and forgotten only slowly.
    assert after(*[0.001] * 200, *[0.2] * 4) > 10 * 0.2 * 0.5
    assert after(*[0.2] * 200, *[0.001] * 10) > 2 * LEAST_SECONDS


@given(seconds=st.lists(st.floats(0.0, 100.0), max_size=100))
def test_it_stays_between_its_bounds(seconds: list[float]) -> None:
    assert LEAST_SECONDS <= after(*seconds) <= MOST_SECONDS


class FallingSilent:
    """Answers so many queries, and then no more."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
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
        body = np.ones(4 * 3 * 10, np.float32).tobytes()
        try:
            while True:
                frame = reader.receive()
                if frame.kind == Kind.ATTACH:
                    connection.sendall(header(Kind.ATTACHED))
                elif self._answers:
                    self._answers -= 1
                    connection.sendall(header(Kind.PARTIAL, len(body), count=3) + body)
        except (Closed, OSError):
            return
        finally:
            connection.close()


@pytest.fixture
def silent() -> Iterator[FallingSilent]:
    archive = FallingSilent(LEAST_ANSWERS + 8)
    yield archive
    archive.close()


def test_an_archive_that_was_quick_is_lost_sooner_than_one_that_never_answered(
    silent: FallingSilent,
) -> None:
    faults: list[RestorerFault] = []
    way = ArchiveWay(
        "127.0.0.1", silent.port, MOST_SECONDS, OpenConnections(), faults.append, lambda _: None
    )
    shape = evicted_stores.small_shape()
    store = RemoteEvictedStore(way, "1", shape, ARCHIVE)
    queries = evicted_stores.random_queries(shape, 0, 4, 3, seed=0)
    for _ in range(LEAST_ANSWERS + 8):
        store.begin(queries)
        store.finish()
    began = time.monotonic()
    store.begin(queries)
    with pytest.raises(RestorerLost, match=r"within 1 s"):
        store.finish()
    assert LEAST_SECONDS <= time.monotonic() - began < MOST_SECONDS / 2
    assert faults == [RestorerFault.DEADLINE]
    store.release()
