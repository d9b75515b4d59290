"""Data connections as their contract has them: spoken here byte by byte, not by the client."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import google_crc32c
import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2, status_pb2

from kakeya.v1.archive_pb2_grpc import ArchiveServiceStub
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.node.admission.limits import ArchiveLimits
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_server import ArchiveServer
from kakeya_fleet.node.roles.archive.archives import Archives
from kakeya_fleet.node.roles.archive.opening import Opening, opening_to_wire
from tests.support import evicted_stores
from tests.support.allowances import allowances_of
from tests.support.patience import PATIENCE_SECONDS

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)
ATTACH, DEPOSIT, QUERIES, FORK, RESERVE, COMPLETE, CARRY, READ = 1, 2, 3, 4, 5, 6, 7, 8
ATTACHED, PARTIAL, FORKED, RESERVED, NOT_RESERVED, ERROR = 65, 66, 67, 69, 70, 127
HEADER = "<IBBHIIfQQII"


class Peer:
    """One data connection without manners."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        self.serial = 0

    def send(
        self, kind: int, body: bytes = b"", layer: int = 0, count: int = 0, number: float = 0.0,
        position: int = 0, version: int = 2, size: int | None = None,
    ) -> None:  # fmt: skip
        self.socket.sendall(self.packed(kind, body, layer, count, number, position, version, size))

    def packed(
        self, kind: int, body: bytes = b"", layer: int = 0, count: int = 0, number: float = 0.0,
        position: int = 0, version: int = 2, size: int | None = None,
    ) -> bytes:  # fmt: skip
        """The next frame, whole."""
        length = len(body) if size is None else size
        self.serial += 1
        fields = (layer, count, number, position, 0, 0, self.serial)
        head = struct.pack(HEADER, length, version, kind, 0, *fields)
        crc = google_crc32c.value(head + body)
        return head + struct.pack("<I", crc) + body

    def frame(self) -> tuple[int, int, int, bytes]:
        """Kind, count, position and body of the next frame."""
        head = self._read(44)
        (crc,) = struct.unpack("<I", self._read(4))
        size, version, kind, zero, _, count, _, position, *_ = struct.unpack(HEADER, head)
        assert (version, zero) == (2, 0)
        body = self._read(size)
        assert google_crc32c.value(head + body) == crc
        return kind, count, position, body

    def reason(self) -> str:
        """That of the error which the next frame must be, behind which nothing comes."""
        kind, _, _, body = self.frame()
        assert kind == ERROR
        assert self.is_closed()
        return reason_in(body)

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            assert part, "the archive closed the connection"
            found += part
        return found


def reason_in(body: bytes) -> str:
    """That of the body of an ERROR."""
    info = error_details_pb2.ErrorInfo()
    for detail in status_pb2.Status.FromString(body).details:
        if detail.Unpack(info):
            assert info.domain == "kakeya"
            return str(info.reason)
    raise AssertionError("an error without a reason")


@pytest.fixture
def shape() -> EvictedShape:
    return evicted_stores.small_shape()


@pytest.fixture
def settings() -> ArchiveLimits:
    return ArchiveLimits()


@pytest.fixture
def archives(shape: EvictedShape, settings: ArchiveLimits) -> Archives:
    """Room for 1,000 positions."""
    numbers = map(str, itertools.count())
    stores = evicted_stores.NaiveStores(1000 * shape.bytes_per_position)
    allowances = allowances_of(archives=settings)
    return Archives(stores, allowances, clock=time.monotonic, ids=lambda: next(numbers))


@pytest.fixture
def stub(archives: Archives) -> Iterator[ArchiveServiceStub]:
    server = ArchiveServer(archives, NodeMetrics(), "127.0.0.1")
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield ArchiveServiceStub(channel)
    server.close()
    assert not len(archives)


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    found: list[Peer] = []
    yield found
    for peer in found:
        peer.socket.close()


def attached(
    stub: ArchiveServiceStub, shape: EvictedShape, peers: list[Peer], first: int = 0
) -> Peer:
    opening = Opening(ARCHIVE, shape, "v", first_position=first)
    opened = stub.OpenArchive(opening_to_wire(opening))
    peer = Peer(opened.data_port)
    peers.append(peer)
    peer.send(ATTACH, opened.archive_id.encode())
    assert peer.frame()[0] == ATTACHED
    return peer


def port_of(stub: ArchiveServiceStub, shape: EvictedShape) -> int:
    return stub.OpenArchive(opening_to_wire(Opening(ARCHIVE, shape, "v"))).data_port


def bytes_of(evicted: Any) -> bytes:
    """Keys and values, and tags of zeros: an archive keeps whatever it is given."""
    layers = sum(len(group) for group in evicted.groups)
    tags = bytes(8 * layers * evicted.groups[0].shape[3])
    return b"".join(group.tobytes() for group in evicted.groups) + tags


def test_frames_are_those_of_the_contract(
    stub: ArchiveServiceStub, shape: EvictedShape, peers: list[Peer]
) -> None:
    kept = evicted_stores.random_evicted(shape, 40, seed=0)
    naive = evicted_stores.NaiveEvictedStore(shape)
    naive.deposit(shape.sink, kept)
    peer = attached(stub, shape, peers)
    peer.send(DEPOSIT, bytes_of(kept), count=40, position=shape.sink)
    asked = evicted_stores.random_queries(shape, 2, 50, 5, seed=1)
    naive.begin(asked)
    expected = naive.finish()
    # Both at once: frames need not come in packets of their own.
    body = asked.queries.tobytes()
    packed = peer.packed(QUERIES, body, 2, 5, asked.scaling, 50)
    fork = peer.packed(FORK, position=20)
    for index in range(0, len(packed), 100):
        peer.socket.sendall(packed[index : index + 100])
    kind, count, first, found = peer.frame()
    assert (kind, count, first) == (PARTIAL, 5, 50)
    parts = (expected.output, expected.total, expected.maximum)
    numbers = np.concatenate([part.ravel() for part in parts])
    np.testing.assert_allclose(np.frombuffer(found, "<f4"), numbers, rtol=1e-6)
    peer.socket.sendall(fork)
    kind, _, length, name = peer.frame()
    assert (kind, length) == (FORKED, 20)
    other = Peer(port_of(stub, shape))
    peers.append(other)
    other.send(ATTACH, name)
    assert other.frame()[:3] == (ATTACHED, 0, 20)


def test_bad_frames_end_their_connection_alone_by_name(
    stub: ArchiveServiceStub, archives: Archives, shape: EvictedShape, peers: list[Peer]
) -> None:
    good = attached(stub, shape, peers)
    kept = bytes_of(evicted_stores.random_evicted(shape, 20, seed=0))
    nan = np.frombuffer(kept, np.float32).copy()
    nan[7] = np.nan
    asked = evicted_stores.random_queries(shape, 0, 30, 2, seed=0).queries
    one = {"number": 1.0}
    start, refused, malformed = shape.sink, "RESTORER_REFUSED", "BAD_REQUEST"
    big = bytes(1100 * (shape.bytes_per_position + 8 * len(shape.layers)))
    cases: list[tuple[str, dict[str, Any]]] = [
        (refused, {"kind": DEPOSIT, "body": nan.tobytes(), "count": 20, "position": start}),
        (refused, {"kind": DEPOSIT, "body": kept, "count": 19, "position": start}),
        (refused, {"kind": DEPOSIT, "body": kept, "count": 1 << 31, "position": start}),
        (refused, {"kind": DEPOSIT, "body": b"", "count": 0, "position": start}),
        (refused, {"kind": DEPOSIT, "body": kept, "count": 20, "position": start + 1}),
        (refused, {"kind": DEPOSIT, "body": kept, "count": 20, "position": 1 << 63}),
        ("ARCHIVE_FULL", {"kind": DEPOSIT, "body": big, "count": 1100, "position": start}),
        (refused, {"kind": QUERIES, "body": asked.tobytes(), "count": 2, "layer": 1} | one),
        (refused, {"kind": QUERIES, "body": asked.tobytes(), "count": 3} | one),
        (refused, {"kind": QUERIES, "body": b"", "count": 0} | one),
        (refused, {"kind": QUERIES, "body": asked.tobytes(), "count": 2, "position": 30} | one),
        (
            refused,
            {"kind": QUERIES, "body": asked.tobytes(), "count": 2, "position": 1 << 40} | one,
        ),
        (refused, {"kind": QUERIES, "body": asked.tobytes(), "count": 2, "number": np.inf}),
        (refused, {"kind": QUERIES, "body": asked.tobytes(), "count": 2, "number": 0.0}),
        (refused, {"kind": READ, "count": 20, "position": start}),
        (refused, {"kind": READ, "count": 0, "position": start}),
        (refused, {"kind": READ, "count": 1, "layer": 1, "position": start}),
        (refused, {"kind": READ, "count": 1 << 31, "position": start}),
        (refused, {"kind": QUERIES, "body": (asked * np.nan).tobytes(), "count": 2} | one),
        (refused, {"kind": FORK, "position": 1 << 40}),
        (malformed, {"kind": ATTACH, "body": b"1"}),
        (malformed, {"kind": PARTIAL}),
        (malformed, {"kind": 0}),
        (malformed, {"kind": FORK, "version": 1}),
        (malformed, {"kind": QUERIES, "size": (4 << 20) + 1}),
    ]
    for reason, fields in cases:
        peer = attached(stub, shape, peers)
        peer.send(**fields)
        assert peer.reason() == reason, fields
    good.send(DEPOSIT, kept, count=20, position=start)
    good.send(QUERIES, asked.tobytes(), count=2, number=1.0, position=30)
    assert good.frame()[0] == PARTIAL


def parts_of(body: bytes, heads: int, count: int, head_dim: int) -> list[Any]:
    numbers = np.frombuffer(body, "<f4")
    rows = heads * count
    cuts = np.split(numbers, [rows * head_dim, rows * (head_dim + 1)])
    return [
        cuts[0].reshape(heads, count, head_dim),
        *(cut.reshape(heads, count) for cut in cuts[1:]),
    ]


def test_ranges_speak_frames_of_their_own(
    stub: ArchiveServiceStub, shape: EvictedShape, peers: list[Peer]
) -> None:
    """An answer is carried from the first range to the second, and is as if of one store."""
    border, end = 256, 300
    kept = evicted_stores.random_evicted(shape, end - shape.sink, seed=0)
    whole = evicted_stores.NaiveEvictedStore(shape)
    whole.deposit(shape.sink, kept)
    asked = evicted_stores.random_queries(shape, 2, end, 5, seed=1)
    whole.begin(asked)
    expected = whole.finish()
    first, second = attached(stub, shape, peers), attached(stub, shape, peers, border)
    second.send(RESERVE, position=end)
    assert second.frame() == (RESERVED, 0, end, b"")
    second.send(RESERVE, position=4000)
    kind, _, _, figures = second.frame()
    assert kind == NOT_RESERVED
    assert struct.unpack("<QQ", figures)[0] == (4000 - border) * shape.bytes_per_position
    own = evicted_stores.part(kept, 0, border - shape.sink)
    first.send(DEPOSIT, bytes_of(own), count=border - shape.sink, position=shape.sink)
    first.send(COMPLETE, position=border)
    rest = evicted_stores.part(kept, border - shape.sink, end - shape.sink)
    second.send(DEPOSIT, bytes_of(rest), count=end - border, position=border)
    question: dict[str, Any] = {"layer": 2, "count": 5, "number": asked.scaling, "position": end}
    # To both at once; the second waits for the first one's answer.
    for peer in (second, first):
        peer.send(QUERIES, asked.queries.tobytes(), **question)
    kind, count, _, carried = first.frame()
    assert (kind, count) == (PARTIAL, 5)
    second.send(CARRY, carried, layer=2, count=5, position=end)
    kind, count, _, found = second.frame()
    assert (kind, count) == (PARTIAL, 5)
    wanted = (expected.output, expected.total[:, :, 0], expected.maximum[:, :, 0])
    for got, right in zip(parts_of(found, 4, 5, 8), wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)


def test_bad_frames_of_ranges_end_their_connection_by_name(
    stub: ArchiveServiceStub, shape: EvictedShape, peers: list[Peer]
) -> None:
    refused, malformed = "RESTORER_REFUSED", "BAD_REQUEST"
    kept = bytes_of(evicted_stores.random_evicted(shape, 20, seed=0))
    question: dict[str, Any] = {"layer": 0, "count": 2, "number": 1.0, "position": 260}
    queries = np.zeros((4, 2, 8), np.float32).tobytes()
    body = np.zeros(4 * 2 * 10, np.float32)
    bad = body.copy()
    bad[3] = np.nan
    negative = body.copy()
    negative[64] = -1.0
    carry = {"layer": 0, "count": 2, "position": 260}
    asked = (QUERIES, queries, question)
    deposit = (DEPOSIT, kept, {"count": 20, "position": 256})
    early = (QUERIES, queries, question | {"position": 5})
    cases: list[tuple[str, int, list[tuple[int, bytes, dict[str, Any]]]]] = [
        (malformed, 0, [(CARRY, b"", carry)]),
        (malformed, 256, [(CARRY, body.tobytes(), carry)]),
        (malformed, 0, [early, (CARRY, body.tobytes(), carry | {"position": 5})]),
        (malformed, 256, [asked, asked]),
        (malformed, 256, [asked, deposit]),
        (malformed, 256, [asked, (CARRY, body.tobytes(), carry | {"layer": 2})]),
        (malformed, 256, [asked, (CARRY, body.tobytes(), carry | {"position": 261})]),
        (refused, 256, [asked, (CARRY, body[1:].tobytes(), carry)]),
        (refused, 256, [asked, (CARRY, bad.tobytes(), carry)]),
        (refused, 256, [asked, (CARRY, negative.tobytes(), carry)]),
        (refused, 256, [(DEPOSIT, kept, {"count": 20, "position": shape.sink})]),
        (refused, 256, [(COMPLETE, b"", {"position": 256})]),
        (refused, 256, [(COMPLETE, b"", {"position": 512})]),
        (refused, 256, [deposit, (COMPLETE, b"", {"position": 276})]),
    ]
    for reason, first, frames in cases:
        peer = attached(stub, shape, peers, first)
        for kind, sent, fields in frames:
            peer.send(kind, sent, **fields)
        found = peer.frame()
        if found[0] == PARTIAL:
            # Of the first range, which waits for nothing.
            found = peer.frame()
        assert (found[0], reason_in(found[3])) == (ERROR, reason), frames


def test_only_who_knows_the_secret_attaches(
    stub: ArchiveServiceStub, shape: EvictedShape, peers: list[Peer]
) -> None:
    own = attached(stub, shape, peers)
    port = port_of(stub, shape)
    for name, reason in (
        (b"\xff\xfe", "ARCHIVE_NOT_FOUND"),
        # That of `own`, which is used.
        (b"0", "ARCHIVE_NOT_FOUND"),
        (b"0" * 257, "BAD_REQUEST"),
    ):
        peers.append(Peer(port))
        peers[-1].send(ATTACH, name)
        assert peers[-1].reason() == reason
    peers.append(Peer(port))
    peers[-1].send(FORK, position=3)
    assert peers[-1].reason() == "BAD_REQUEST"
    own.send(FORK, position=0)
    assert own.frame()[0] == FORKED


@pytest.mark.parametrize("settings", [ArchiveLimits(greeting_seconds=0.3, greetings=4)])
def test_who_does_not_attach_keeps_nobody_out_and_is_closed(
    stub: ArchiveServiceStub,
    shape: EvictedShape,
    peers: list[Peer],
    settings: ArchiveLimits,
) -> None:
    port = port_of(stub, shape)
    idle = [Peer(port) for _ in range(settings.greetings)]
    peers += idle
    # One that asks has the place of the one that has said nothing for longest.
    attached(stub, shape, peers)
    assert idle[0].is_closed()
    # Some say nothing, others half of a frame.
    for peer in idle[::2]:
        peer.socket.sendall(b"\x01\x00")
    assert all(peer.is_closed() for peer in idle)
    attached(stub, shape, peers)


def test_an_archive_ends_with_its_connection(
    stub: ArchiveServiceStub, archives: Archives, shape: EvictedShape
) -> None:
    peer = attached(stub, shape, [])
    assert len(archives) == 1
    # In the middle of a frame.
    peer.send(QUERIES, b"123", size=64)
    peer.socket.close()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(archives) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not len(archives)


def test_an_archive_that_expires_or_leaves_says_so(
    stub: ArchiveServiceStub, archives: Archives, shape: EvictedShape, peers: list[Peer]
) -> None:
    late = attached(stub, shape, peers)
    archives.sweep(time.monotonic() + 1e6)
    assert late.reason() == "ARCHIVE_NOT_FOUND"
    cut_off = attached(stub, shape, peers)
    archives.cut_off()
    assert cut_off.reason() == "DRAINING"
