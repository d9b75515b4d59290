"""Mutated bytes at every call and every frame of an archive: refused by name, counted, no more.

Seeded: what failed once fails again.
"""

from __future__ import annotations

import itertools
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator

import google_crc32c
import grpc
import pytest
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from kakeya.v1 import archive_pb2 as wire
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_server import ArchiveServer
from kakeya_fleet.node.roles.archive.archives import Archives
from kakeya_fleet.node.roles.archive.data_frames import (
    Closed,
    Frame,
    FrameReader,
    Kind,
    parts_of,
)
from kakeya_fleet.node.roles.archive.opening import Opening, opening_to_wire
from kakeya_fleet.node.roles.archive.restorer_fault import error_info
from tests.support import evicted_stores
from tests.support.allowances import allowances_of
from tests.support.patience import PATIENCE_SECONDS

SEED = 20_261_123
"""Of all mutations."""
MUTATIONS = 150
"""Of each call, and of each kind of frame."""
HEADER_BYTES, CRC_AT = 48, 44
REFUSED = {"BAD_REQUEST", "RESTORER_REFUSED", "ARCHIVE_NOT_FOUND", "ARCHIVE_FULL"}
SERVICE = "/kakeya.v1.ArchiveService/"


@pytest.fixture
def shape() -> EvictedShape:
    return evicted_stores.small_shape()


@pytest.fixture
def metrics() -> NodeMetrics:
    return NodeMetrics()


@pytest.fixture
def archives(shape: EvictedShape) -> Archives:
    numbers = map(str, itertools.count())
    stores = evicted_stores.NaiveStores(4000 * shape.bytes_per_position)
    return Archives(stores, allowances_of(), clock=time.monotonic, ids=lambda: next(numbers))


@pytest.fixture
def server(archives: Archives, metrics: NodeMetrics) -> Iterator[ArchiveServer]:
    started = ArchiveServer(archives, metrics, "127.0.0.1")
    yield started
    started.close()
    assert not len(archives)


@pytest.fixture
def rng() -> random.Random:
    return random.Random(SEED)


def counted(metrics: NodeMetrics) -> dict[str, float]:
    """Calls and connections that ended with an error, by reason."""
    return {
        sample.labels["reason"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "kakeya_rpc_errors_total"
    }


def mutated(rng: random.Random, whole: bytes) -> bytes:
    """Bits flipped, bytes cut, put in or doubled."""
    found = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(4):
            case 0 if at < len(found):
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                del found[at : at + rng.randint(1, 8)]
            case 2:
                found[at:at] = rng.randbytes(rng.randint(1, 8))
            case _:
                found[at:at] = found[at : at + 16]
    return bytes(found)


@pytest.mark.parametrize("method", ["OpenArchive", "CloseArchive"])
def test_calls_of_mutated_bytes_are_refused_by_name_and_counted(
    server: ArchiveServer,
    archives: Archives,
    metrics: NodeMetrics,
    shape: EvictedShape,
    rng: random.Random,
    method: str,
) -> None:
    opening = opening_to_wire(Opening(evicted_stores.ARCHIVE, shape, "v"))
    requests = {"OpenArchive": opening, "CloseArchive": wire.CloseArchiveRequest(archive_id="x")}
    whole = requests[method].SerializeToString()
    request_type = type(requests[method])
    refused = 0
    codes: list[grpc.StatusCode] = []
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call: Callable[..., bytes] = channel.unary_unary(SERVICE + method)
        for _ in range(MUTATIONS):
            sent = mutated(rng, whole)
            try:
                answer = call(sent, timeout=PATIENCE_SECONDS)
            except grpc.RpcError as error:
                info = error_info(error)
                assert info is not None, sent
                assert info.reason in REFUSED, (info.reason, sent)
                refused += 1
                if not _parses(request_type, sent):
                    codes.append(error.code())
                continue
            if method == "OpenArchive":
                archives.close(wire.OpenArchiveResponse.FromString(answer).archive_id)
    assert set(codes) == {grpc.StatusCode.INVALID_ARGUMENT}
    assert sum(counted(metrics).values()) == refused
    assert set(counted(metrics)) <= REFUSED


def test_a_field_that_cannot_be_is_named(server: ArchiveServer, shape: EvictedShape) -> None:
    opening = opening_to_wire(Opening(evicted_stores.ARCHIVE, shape, "v"))
    opening.lease_seconds = float("nan")
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call: Callable[..., bytes] = channel.unary_unary(SERVICE + "OpenArchive")
        with pytest.raises(grpc.RpcError) as refused:
            call(opening.SerializeToString(), timeout=PATIENCE_SECONDS)
    info = error_info(refused.value)
    assert info is not None
    assert (info.reason, info.metadata["field"]) == ("RESTORER_REFUSED", "lease_seconds")


def _parses(request_type: type[Message], sent: bytes) -> bool:
    try:
        request_type.FromString(sent)
    except DecodeError:
        return False
    return True


def frames(shape: EvictedShape) -> dict[Kind, list[tuple[Frame, bytes]]]:
    """For each kind what comes before it, and then itself."""
    evicted = evicted_stores.random_evicted(shape, 40, seed=0)
    body = b"".join(group.tobytes() for group in evicted.groups)
    body += bytes(40 * len(shape.layers) * 8)
    deposit = (Frame(Kind.DEPOSIT, count=40, position=shape.sink), body)
    asked = evicted_stores.random_queries(shape, 2, 50, 2, seed=1)
    return {
        Kind.DEPOSIT: [deposit],
        Kind.QUERIES: [deposit, (Frame(Kind.QUERIES, 2, 2, 0.5, 50), asked.queries.tobytes())],
        Kind.READ: [deposit, (Frame(Kind.READ, 2, 10, 0.0, shape.sink), b"")],
        Kind.FORK: [deposit, (Frame(Kind.FORK, position=20), b"")],
        Kind.RESERVE: [(Frame(Kind.RESERVE, position=500), b"")],
        Kind.COMPLETE: [deposit, (Frame(Kind.COMPLETE, position=43), b"")],
        Kind.CARRY: [deposit, (Frame(Kind.CARRY, 2, 2, 0.0, 50), b"")],
    }


def _summed(whole: bytes) -> bytes:
    """With a checksum that is right again, so that what is behind it is reached."""
    if len(whole) < HEADER_BYTES:
        return whole
    body = whole[HEADER_BYTES:]
    head = struct.pack("<I", len(body)) + whole[4:CRC_AT]
    return head + struct.pack("<I", google_crc32c.value(head + body)) + body


def _end_of(port: int, archive_id: str, before: list[bytes], sent: bytes) -> str:
    """How a connection ends on which this is all that is sent: a reason, or empty."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        attach = parts_of(Frame(Kind.ATTACH, serial=1), archive_id.encode())
        connection.sendall(b"".join([*map(bytes, attach), *before, sent]))
        connection.shutdown(socket.SHUT_WR)
        reader = FrameReader(connection)
        while True:
            try:
                frame = reader.receive()
            except Closed:
                return ""
            if frame.kind == Kind.ERROR:
                info = error_details_pb2.ErrorInfo()
                status = status_pb2.Status.FromString(frame.body.tobytes())
                assert any(detail.Unpack(info) for detail in status.details)
                return str(info.reason)


@pytest.mark.parametrize("kind", list(frames(evicted_stores.small_shape())))
def test_mutated_frames_end_their_connection_by_name_and_are_counted(
    server: ArchiveServer,
    archives: Archives,
    metrics: NodeMetrics,
    shape: EvictedShape,
    rng: random.Random,
    kind: Kind,
) -> None:
    port = server._data.port
    numbered = [
        b"".join(map(bytes, parts_of(_with_serial(head, serial), body)))
        for serial, (head, body) in enumerate(frames(shape)[kind], start=2)
    ]
    *before, whole = numbered
    reasons: list[str] = []
    for number in range(MUTATIONS // 3):
        archive = archives.open(Opening(evicted_stores.ARCHIVE, shape, "v"))
        sent = mutated(rng, whole)
        # One of two with a right checksum.
        sent = _summed(sent) if number % 2 else sent
        reasons.append(_end_of(port, archive.archive_id, before, sent))
    told = [reason for reason in reasons if reason]
    assert set(told) <= REFUSED | {"FRAME_CORRUPT"}
    assert "FRAME_CORRUPT" in told
    assert sum(counted(metrics).values()) == len(told)


def _with_serial(head: Frame, serial: int) -> Frame:
    return Frame(head.kind, head.layer, head.count, head.number, head.position, serial=serial)
