"""The frames of a data connection to an archive, version 2.

A data connection is one TCP connection to the port that OpenArchive named; in a fleet with an
authority its bytes go by TLS 1.3, see `node.trust.sealed_stream`. Both ends send frames: a header
of 48 bytes and a body, all numbers little-endian:

    offset  type     field
    0       uint32   bytes of the body, at most `MOST_BODY_BYTES`
    4       uint8    version, 2
    5       uint8    kind, below
    6       uint16   0
    8       uint32   layer
    12      uint32   count
    16      float32  number
    20      uint64   position
    28      uint64   stored bytes, of answers; else 0
    36      uint32   deposited, of answers; else 0
    40      uint32   serial
    44      uint32   CRC-32C of the 44 bytes before and of the body

    kind              layer  count      number   position      body
    1 ATTACH          0      0          0        0             the archive's id
    2 DEPOSIT         0      positions  0        the first     keys and values and tags, or vectors
    3 QUERIES         layer  queries    scaling  the first     queries
    4 FORK            0      0          0        its length    empty
    5 RESERVE         0      0          0        the end       empty
    6 COMPLETE        0      0          0        the end       empty
    7 CARRY           layer  queries    0        the first     as PARTIAL, or empty
    8 READ            layer  positions  0        the first     empty
    65 ATTACHED       0      0          0        length        empty
    66 PARTIAL        layer  queries    seconds  the first     output, total, maximum in turn
    67 FORKED         0      0          0        its length    the fork's id
    68 NOT_FORKED     0      0          0        0             needed and free bytes, uint64
    69 RESERVED       0      0          0        the end       empty
    70 NOT_RESERVED   0      0          0        0             needed and free bytes, uint64
    71 KEPT           layer  positions  0        the first     keys and values of a layer, and tags
    127 ERROR         0      0          0        0             google.rpc.Status

The session numbers its frames from 1: one that is lost, doubled or out of order is
found. An answer has the serial of the frame that it answers (of QUERIES, where a CARRY
follows), and its layer, count and position. `deposited` is the CRC-32C of all bodies of
deposits that were taken over this connection, in order: what is acknowledged.

Their meaning is told in archive.proto, and so are
the errors: ATTACH comes first and is answered, a deposit is not, the answers
come in the order of the requests, and an ERROR is the last frame. The archive is
released when the connection ends. A session has at most one request under way
that is answered, so that neither end ever waits with unread bytes of the other. An
archive whose range does not begin at position 0 answers QUERIES behind the CARRY
that follows; nothing comes between them.
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import time
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

import google_crc32c
import numpy as np

from kakeya_fleet.node.roles.archive.adaptive_spin import AWAKE_SECONDS, AdaptiveSpin
from kakeya_fleet.node.rpc.refusals import CorruptFrame, MalformedMessage
from kakeya_fleet.node.trust.sealed_stream import ByteStream

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 2
MOST_BODY_BYTES = 4 << 20
"""As gRPC's messages: what a position or a query of any model takes is far less."""
MOST_ID_BYTES = 256
READ_BYTES = 1 << 16
"""What is read at once, as far as it is there."""
BYTE_COUNTS = struct.Struct("<QQ")
"""The body of NOT_FORKED and NOT_RESERVED."""

_HEAD = struct.Struct("<IBBHIIfQQII")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _CRC.size
_KEEPALIVE_SECONDS = 10
Body: TypeAlias = "NDArray[np.uint8]"


class Kind(IntEnum):
    """What a frame is."""

    ATTACH = 1
    DEPOSIT = 2
    QUERIES = 3
    FORK = 4
    RESERVE = 5
    COMPLETE = 6
    CARRY = 7
    READ = 8
    ATTACHED = 65
    PARTIAL = 66
    FORKED = 67
    NOT_FORKED = 68
    RESERVED = 69
    NOT_RESERVED = 70
    KEPT = 71
    ERROR = 127


class Closed(Exception):
    """The other end closed the connection."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; `body` is memory of its own. Which fields a kind has is told above."""

    kind: int
    layer: int = 0
    count: int = 0
    number: float = 0.0
    position: int = 0
    stored_bytes: int = 0
    deposited: int = 0
    serial: int = 0
    body: Body = field(default_factory=lambda: np.empty(0, np.uint8))


def extended_crc(crc: int, data: bytes | memoryview) -> int:
    """CRC-32C (Castagnoli; RFC 3720, appendix B.4) of what has `crc`, and of `data` behind it."""
    if not len(data):
        return crc
    # The library takes no memory that can be written, unless an array shows it.
    readable = data if isinstance(data, bytes) else np.frombuffer(data, np.uint8)
    return int(google_crc32c.extend(crc, readable))


def parts_of(head: Frame, *body: bytes | memoryview) -> tuple[bytes | memoryview, ...]:
    """A frame as it is sent: its header, then `body` in place of the frame's own.

    The parts are contiguous, and must not change until they were sent.
    """
    size = sum(len(part) if isinstance(part, bytes) else part.nbytes for part in body)
    packed = _HEAD.pack(
        size,
        VERSION,
        head.kind,
        0,
        head.layer,
        head.count,
        head.number,
        head.position,
        head.stored_bytes,
        head.deposited,
        head.serial,
    )
    crc = extended_crc(0, packed)
    for part in body:
        crc = extended_crc(crc, part)
    return (packed + _CRC.pack(crc), *body)


def send_parts(connection: ByteStream, *parts: bytes | memoryview) -> None:
    """Sends a header and what its body consists of, each contiguous. Raises `OSError`."""
    sent = connection.sendmsg(parts)
    if sent < sum(len(part) if isinstance(part, bytes) else part.nbytes for part in parts):
        rest = memoryview(b"".join(map(bytes, parts)))
        connection.sendall(rest[sent:])


class FrameReader:
    """Reads the frames of one connection; most come whole with one system call."""

    def __init__(self, connection: ByteStream) -> None:
        self._connection = connection
        self._spin = AdaptiveSpin(AWAKE_SECONDS)
        self._ahead = memoryview(bytearray(READ_BYTES))
        self._first = 0
        self._end = 0

    def receive(self, most: int = MOST_BODY_BYTES, *, within: float | None = None) -> Frame:
        """The next frame, of a body of at most `most` bytes, `within` seconds of now if given.

        Raises `TimeoutError`, `Closed`, another `OSError`, `MalformedMessage` for bytes
        that are no frame, and `CorruptFrame` for one that arrives as another.
        """
        deadline = None if within is None else time.monotonic() + within
        while self._end - self._first < HEADER_BYTES:
            self._read_ahead(deadline)
        head = bytes(self._ahead[self._first : self._first + HEADER_BYTES])
        size, version, kind, zero, layer, count, number, position, *told = _HEAD.unpack_from(head)
        if version != VERSION or zero:
            raise MalformedMessage(f"a frame of version {version}; this is {VERSION}")
        if size > most:
            raise MalformedMessage(f"a frame of {size} bytes; {most} are the most")
        body = self._body(size, deadline)
        if extended_crc(extended_crc(0, head[: _HEAD.size]), body.data) != _crc_in(head):
            raise CorruptFrame("a frame arrived with other bytes than were sent")
        stored_bytes, deposited, serial = told
        return Frame(kind, layer, count, number, position, stored_bytes, deposited, serial, body)

    def _body(self, size: int, deadline: float | None) -> Body:
        first = self._first + HEADER_BYTES
        there = min(size, self._end - first)
        self._first = first + there
        body = np.empty(size, np.uint8)
        view = body.data
        view[:there] = self._ahead[first : first + there]
        while there < size:
            there += _received(self._connection, view[there:], deadline)
        return body

    def _read_ahead(self, deadline: float | None) -> None:
        left = self._end - self._first
        if self._first:
            self._ahead[:left] = self._ahead[self._first : self._end]
            self._first, self._end = 0, left
        into = self._ahead[left:]
        count = 0
        if self._spin.begin():
            count = _polled(self._connection, into, self._spin.seconds)
            self._spin.end(came=bool(count))
        self._end += count or _received(self._connection, into, deadline)


def _crc_in(head: bytes) -> int:
    found: int = _CRC.unpack_from(head, _HEAD.size)[0]
    return found


def prepare(connection: socket.socket, seconds: float) -> None:
    """Frames leave at once, a dead peer is found out, and no call takes longer than `seconds`.

    The kernel keeps the time: a socket with Python's own would ask for it with a
    system call more before each read and write.
    """
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
            connection.setsockopt(socket.IPPROTO_TCP, option, _KEEPALIVE_SECONDS)
    limit_waits(connection, reading=seconds, writing=seconds)


def limit_waits(connection: socket.socket, *, reading: float, writing: float) -> None:
    """The longest that one read, and one write, waits, in seconds; 0 for ever."""
    for option, seconds in ((socket.SO_RCVTIMEO, reading), (socket.SO_SNDTIMEO, writing)):
        value = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
        connection.setsockopt(socket.SOL_SOCKET, option, value)


def _received(connection: ByteStream, into: memoryview, deadline: float | None) -> int:
    """Reads some bytes. Raises `TimeoutError`, `Closed`, another `OSError`."""
    while True:
        # One that sends byte by byte is not waited for longer than one that is silent.
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError("too little came in time")
        try:
            count = connection.recv_into(into)
        except BlockingIOError as error:
            raise TimeoutError("nothing came in time") from error
        except ssl.SSLWantReadError:
            # A record has begun to come.
            continue
        if not count:
            raise Closed
        return count


def _polled(connection: ByteStream, into: memoryview, seconds: float) -> int:
    """Bytes that came within `seconds`; 0 when none did. Raises `Closed`, `OSError`."""
    until = time.perf_counter() + seconds
    while True:
        try:
            count = connection.recv_into(into, 0, socket.MSG_DONTWAIT)
        except (BlockingIOError, ssl.SSLWantReadError):
            if time.perf_counter() >= until:
                return 0
            continue
        if not count:
            raise Closed
        return count
