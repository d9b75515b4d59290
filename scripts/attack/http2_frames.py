"""Bytes at gRPC's port that none of its libraries writes: frames of HTTP/2 (RFC 9113), and none."""

from __future__ import annotations

import random
import ssl

from scripts.attack.methods import LEAVE, all_methods
from scripts.attack.mutations import Mutator
from scripts.attack.streams import Refused, exchanged
from scripts.attack.tally import Tally

SERVICE = "grpc port"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
KINDS = range(12)
MOST_FRAMES = 12
PATHS = [method.path for method in all_methods() if method.name != LEAVE]
SILENCE_SECONDS = 0.05
"""gRPC answers what it understands at once, and keeps a connection open."""


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


def header(name: str, value: str) -> bytes:
    """A field of HPACK (RFC 7541, section 6.2.2): literal, not indexed, no Huffman code."""
    return b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


class FrameFuzzer:
    """A preface, most times, and frames that fit together or do not."""

    def __init__(
        self,
        address: str,
        tally: Tally,
        rng: random.Random,
        tls: ssl.SSLContext | None = None,
        service: str = SERVICE,
    ) -> None:
        """`service` is the port's name in the report."""
        self._address = address
        self._tls = tls
        self._service = service
        self._rng = rng
        self._tally = tally

    async def once(self) -> None:
        """One connection."""
        rng = self._rng
        count = rng.randint(1, MOST_FRAMES)
        self._tally.sent(self._service, count)
        try:
            answer = await exchanged(
                self._address,
                preface_and_frames(rng, count),
                half_closes=rng.random() < 0.5,
                silence_seconds=SILENCE_SECONDS,
                tls=self._tls,
            )
        except Refused:
            self._tally.ended(self._service, "no connection")
            return
        self._tally.ended(self._service, "answered" if answer else "closed")


def preface_and_frames(rng: random.Random, count: int = 1) -> bytes:
    """What a connection of HTTP/2 begins with, most times, and so many frames."""
    sent = b"".join(_frame(rng) for _ in range(count))
    if rng.random() < 0.9:
        sent = PREFACE + frame(SETTINGS, 0, 0, b"") + sent
    return Mutator(rng).damaged(sent) if rng.random() < 0.3 else sent


def _frame(rng: random.Random) -> bytes:
    stream = rng.choice((0, 1, 1, 1, 3, 5, 2, (1 << 31) - 1))
    match rng.randrange(4):
        case 0:
            flags = rng.choice((END_HEADERS, END_HEADERS | END_STREAM, 0))
            return frame(HEADERS, flags, stream, _head(rng))
        case 1:
            message = rng.randbytes(rng.choice((0, 1, 5, 200)))
            size = rng.choice((len(message), 0, (1 << 32) - 1))
            body = bytes((rng.choice((0, 0, 1, 7)),)) + size.to_bytes(4, "big") + message
            return frame(DATA, rng.choice((0, END_STREAM)), stream, body)
        case _:
            kind = rng.choice(KINDS)
            payload = rng.randbytes(rng.choice((0, 4, 5, 6, 8, 17, 300)))
            return frame(kind, rng.randrange(256), stream, payload)


def _head(rng: random.Random) -> bytes:
    fields = [
        header(":method", "POST"),
        header(":scheme", "http"),
        header(":path", rng.choice((*PATHS, "/", "", "/x/y", "no"))),
        header("content-type", rng.choice(("application/grpc", "text/html", ""))),
        header("te", "trailers"),
        header("grpc-timeout", rng.choice(("1S", "99999999H", "-1S", "x", "0n"))),
        header("grpc-encoding", rng.choice(("identity", "gzip", "none"))),
        header("x-bin", "\x7f" * rng.choice((1, 100))),
    ]
    if rng.random() < 0.3:
        rng.shuffle(fields)
        del fields[rng.randrange(len(fields)) :]
    return b"".join(fields)
