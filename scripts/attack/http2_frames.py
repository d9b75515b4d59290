"""Bytes at gRPC's port that none of its libraries writes: frames of HTTP/2 (RFC 9113), and none."""

from __future__ import annotations

import random

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

    def __init__(self, address: str, tally: Tally, rng: random.Random) -> None:
        self._address = address
        self._rng = rng
        self._tally = tally
        self._mutator = Mutator(rng)
        self._paths = [method.path for method in all_methods() if method.name != LEAVE]

    async def once(self) -> None:
        """One connection."""
        rng = self._rng
        frames = [self._frame() for _ in range(rng.randint(1, MOST_FRAMES))]
        sent = b"".join(frames)
        if rng.random() < 0.9:
            sent = PREFACE + frame(SETTINGS, 0, 0, b"") + sent
        if rng.random() < 0.3:
            sent = self._mutator.damaged(sent)
        self._tally.sent(SERVICE, len(frames))
        half_closes = rng.random() < 0.5
        try:
            answer = await exchanged(
                self._address, sent, half_closes=half_closes, silence_seconds=SILENCE_SECONDS
            )
        except Refused:
            self._tally.ended(SERVICE, "no connection")
            return
        self._tally.ended(SERVICE, "answered" if answer else "closed")

    def _frame(self) -> bytes:
        rng = self._rng
        stream = rng.choice((0, 1, 1, 1, 3, 5, 2, (1 << 31) - 1))
        match rng.randrange(4):
            case 0:
                return frame(
                    HEADERS,
                    rng.choice((END_HEADERS, END_HEADERS | END_STREAM, 0)),
                    stream,
                    self._head(),
                )
            case 1:
                message = rng.randbytes(rng.choice((0, 1, 5, 200)))
                size = rng.choice((len(message), 0, (1 << 32) - 1))
                body = bytes((rng.choice((0, 0, 1, 7)),)) + size.to_bytes(4, "big") + message
                return frame(DATA, rng.choice((0, END_STREAM)), stream, body)
            case _:
                kind = rng.choice(KINDS)
                payload = rng.randbytes(rng.choice((0, 4, 5, 6, 8, 17, 300)))
                return frame(kind, rng.randrange(256), stream, payload)

    def _head(self) -> bytes:
        rng = self._rng
        fields = [
            header(":method", "POST"),
            header(":scheme", "http"),
            header(":path", rng.choice((*self._paths, "/", "", "/x/y", "no"))),
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
