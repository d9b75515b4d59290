"""Mutated frames at the data port of an archive that is open."""

from __future__ import annotations

import math
import random
import ssl
import struct
from typing import Any

import google_crc32c
import grpc.aio
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from kakeya.v1 import archive_pb2_grpc
from kakeya_fleet.node.roles.archive.data_frames import HEADER_BYTES, Frame, Kind, parts_of
from scripts.attack.calls import reason_in, reason_of
from scripts.attack.mutations import BOUNDS, FLOATS, Mutator
from scripts.attack.seeds import Seeds, seeds_for
from scripts.attack.streams import Refused, exchanged
from scripts.attack.tally import Tally

SERVICE = "archive data"
LAYERS, HEADS, QUERY_HEADS, WIDTH, SINK = 2, 1, 2, 8, 4
"""Those of `Seeds.archive`."""
DEPOSITED, ASKED = 20, 2
KIND_AT, LAYER_AT, COUNT_AT, NUMBER_AT, POSITION_AT, STORED_AT, SERIAL_AT = 5, 8, 12, 16, 20, 28, 40
CRC_AT = HEADER_BYTES - 4
"""Of a header, see `kakeya_fleet.node.roles.archive.data_frames`."""
UINT32S = BOUNDS[FieldDescriptor.CPPTYPE_UINT32]
UINT64S = BOUNDS[FieldDescriptor.CPPTYPE_UINT64]
STATUS_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


class ArchiveFuzzer:
    """Opens an archive, attaches, says something right and then one thing that is not."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        archives: grpc.aio.Channel,
        tally: Tally,
        rng: random.Random,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`archives` leads to where ArchiveService answers, `channel` to its node."""
        self._tls = tls
        self._node_channel = channel
        self._stub = archive_pb2_grpc.ArchiveServiceStub(archives)
        self._rng = rng
        self._tally = tally
        self._mutator = Mutator(rng)
        self._seeds: Seeds | None = None

    async def once(self) -> None:
        """One connection."""
        self._seeds = self._seeds or await seeds_for(self._node_channel, self._rng)
        try:
            opened = await self._stub.OpenArchive(self._seeds.archive(), timeout=5)
        except grpc.aio.AioRpcError as error:
            self._tally.ended(SERVICE, error.code().name, reason_of(error))
            return
        frames = self._frames(opened.archive_id)
        right = frames[: self._rng.randint(0, len(frames) - 1)]
        wrong = self._rng.choice(frames)
        sent = b"".join(right) + self._mutated(wrong, len(right) + 1)
        self._tally.sent(SERVICE)
        try:
            answer = await exchanged(
                f"127.0.0.1:{opened.data_port}", sent, half_closes=True, tls=self._tls
            )
        except Refused:
            self._tally.ended(SERVICE, "no connection")
            return
        status, reason = end_of(answer)
        self._tally.ended(SERVICE, status, reason)

    def _frames(self, archive_id: str) -> list[bytes]:
        """A conversation, its serials from 1."""
        rng = self._rng
        rows = [HEADS, DEPOSITED, WIDTH]
        body = rng.randbytes(LAYERS * 2 * 4 * math.prod(rows))
        finite = bytes(byte & 0x3F if index % 4 == 3 else byte for index, byte in enumerate(body))
        tags = bytes(DEPOSITED * LAYERS * 8)
        queries = bytes(4 * QUERY_HEADS * ASKED * WIDTH)
        end = SINK + DEPOSITED
        said: list[tuple[Frame, bytes]] = [
            (Frame(Kind.ATTACH), archive_id.encode()),
            (Frame(Kind.DEPOSIT, count=DEPOSITED, position=SINK), finite + tags),
            (Frame(Kind.QUERIES, 1, ASKED, 0.5, end + 16), queries),
            (Frame(Kind.READ, 1, 4, 0.0, SINK), b""),
            (Frame(Kind.RESERVE, position=500), b""),
            (Frame(Kind.FORK, position=SINK + 4), b""),
            (Frame(Kind.CARRY, 1, ASKED, 0.0, end), b""),
            (Frame(Kind.COMPLETE, position=8192), b""),
        ]
        return [
            b"".join(
                map(
                    bytes,
                    parts_of(
                        Frame(
                            head.kind,
                            head.layer,
                            head.count,
                            head.number,
                            head.position,
                            serial=serial,
                        ),
                        content,
                    ),
                )
            )
            for serial, (head, content) in enumerate(said, start=1)
        ]

    def _mutated(self, whole: bytes, serial: int) -> bytes:
        rng = self._rng
        found = bytearray(whole)
        struct.pack_into("<I", found, SERIAL_AT, serial)
        for _ in range(rng.randint(1, 2)):
            match rng.randrange(7):
                case 0:
                    found[KIND_AT] = rng.choice((*Kind, 0, 9, 255))
                case 1 | 2:
                    at = rng.choice((LAYER_AT, COUNT_AT, SERIAL_AT))
                    struct.pack_into("<I", found, at, rng.choice(UINT32S))
                case 3:
                    struct.pack_into("<f", found, NUMBER_AT, rng.choice(FLOATS))
                case 4:
                    at = rng.choice((POSITION_AT, STORED_AT))
                    struct.pack_into("<Q", found, at, rng.choice(UINT64S))
                case 5 if len(found) > HEADER_BYTES + 8:
                    at = HEADER_BYTES + 4 * rng.randrange((len(found) - HEADER_BYTES) // 4)
                    struct.pack_into("<f", found, at, rng.choice((math.nan, math.inf, 1e38)))
                case _:
                    body = self._mutator.damaged(bytes(found[HEADER_BYTES:]))
                    found[HEADER_BYTES:] = body
        # One of four keeps the checksum of what it was, or the size.
        if rng.random() < 0.75:
            struct.pack_into("<I", found, 0, len(found) - HEADER_BYTES)
        if rng.random() < 0.75:
            crc = google_crc32c.value(bytes(found[:CRC_AT] + found[HEADER_BYTES:]))
            struct.pack_into("<I", found, CRC_AT, crc)
        return bytes(found) if rng.random() < 0.9 else self._mutator.damaged(bytes(found))


def end_of(answer: bytes) -> tuple[str, str]:
    """How a connection ended, of all that was answered: a status and a reason, if there is one."""
    at, kind = 0, 0
    while at + HEADER_BYTES <= len(answer):
        (size,) = struct.unpack_from("<I", answer, at)
        kind = answer[at + KIND_AT]
        body = answer[at + HEADER_BYTES : at + HEADER_BYTES + size]
        at += HEADER_BYTES + size
    if kind != Kind.ERROR:
        return "closed", ""
    try:
        status: Any = status_pb2.Status.FromString(body)
    except DecodeError:
        return "UNKNOWN", "a status that does not parse"
    return STATUS_CODES[status.code], reason_in(status)
