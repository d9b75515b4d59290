"""What an agent shares with the child process of a ring: frames, pieces, the proof.

Tensors' bytes lie in a shared segment, cut into pieces, in slots that are used in
turn; frames of eight bytes on a socket say which slot may be read or filled next.
The same frames and slots carry a road of shared memory between two agents. Imports
no tensor library: the child alone does.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER_BYTES = 4096
"""The segment's first page: the nonce of a road of shared memory, else nothing."""
PROOF_BYTES = 32
MAX_TEXT_BYTES = 4096
MAX_SEGMENT_BYTES = 1 << 30

_FRAME = struct.Struct("<BxxxI")


class FrameKind(IntEnum):
    """What a frame says; its number is a size in bytes, or nothing."""

    START = 1
    """To the child: a `RingStart` of so many bytes follows."""
    READY = 2
    """The other end is reached and has proven itself."""
    PIECE = 3
    """The next slot of this direction holds so many bytes."""
    TAKEN = 4
    """The oldest filled slot of the other direction is free again."""
    RECEIVE = 5
    """To the child: fill the next slot with so many bytes from the ring."""
    FAILED = 6
    """It has ended; a sentence of so many bytes follows."""


_WITH_TEXT = (FrameKind.START, FrameKind.FAILED)


@dataclass(frozen=True, slots=True)
class Frame:
    """One message; `text` only with START and FAILED, whose number is its size."""

    kind: FrameKind
    byte_count: int = 0
    text: bytes = b""

    def packed(self) -> bytes:
        """As it goes over the socket."""
        size = len(self.text) if self.kind in _WITH_TEXT else self.byte_count
        return _FRAME.pack(self.kind, size) + self.text


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are whole now. Raises `ValueError` for what is no frame."""
        self._bytes += data
        frames = []
        while len(self._bytes) >= _FRAME.size:
            number, size = _FRAME.unpack_from(self._bytes)
            kind = FrameKind(number)
            end = _FRAME.size
            if kind in _WITH_TEXT:
                if size > MAX_TEXT_BYTES:
                    raise ValueError(f"a frame with {size} bytes of text")
                end += size
            if len(self._bytes) < end:
                break
            text = bytes(self._bytes[_FRAME.size : end])
            del self._bytes[:end]
            frames.append(Frame(kind, size, text))
        return frames


@dataclass(frozen=True, slots=True)
class Pieces:
    """How a segment is divided: two directions of `slot_count` slots of `piece_bytes`.

    Direction 0 leads from the maker of the segment to the other process.
    """

    piece_bytes: int
    slot_count: int

    def __post_init__(self) -> None:
        if self.piece_bytes < 1 or self.slot_count < 1 or self.segment_bytes > MAX_SEGMENT_BYTES:
            raise ValueError(f"{self.slot_count} slots of {self.piece_bytes} bytes")

    @property
    def segment_bytes(self) -> int:
        """Size of the segment."""
        return HEADER_BYTES + 2 * self.slot_count * self.piece_bytes

    def lengths(self, byte_count: int) -> list[int]:
        """The pieces of so many bytes: whole ones and the rest."""
        whole, rest = divmod(byte_count, self.piece_bytes)
        return [self.piece_bytes] * whole + ([rest] if rest else [])

    def slot(
        self, segment: NDArray[np.uint8], direction: int, index: int, byte_count: int
    ) -> NDArray[np.uint8]:
        """The bytes of a direction's piece `index`, counted from its first, in the segment."""
        number = direction * self.slot_count + index % self.slot_count
        begin = HEADER_BYTES + number * self.piece_bytes
        return segment[begin : begin + byte_count]


@dataclass(frozen=True, slots=True)
class RingStart:
    """What the child is told before it joins the ring; never on its command line.

    `nonce_hex` is that of the road. The child ends itself when it has not reached the
    other rank within `ready_seconds`.
    """

    nonce_hex: str
    rank: int
    piece_bytes: int
    slot_count: int
    ready_seconds: float

    def frame(self) -> Frame:
        """As it goes to the child."""
        return Frame(FrameKind.START, text=json.dumps(asdict(self)).encode())

    @classmethod
    def unpacked(cls, text: bytes) -> Self:
        """Of a START frame. Raises `ValueError` or `TypeError`."""
        return cls(**json.loads(text))

    @property
    def pieces(self) -> Pieces:
        """How the segment is divided."""
        return Pieces(self.piece_bytes, self.slot_count)


def proof(nonce: bytes, end: str) -> bytes:
    """What only an end that knows the nonce can say; another for each end, so no echo passes.

    HMAC-SHA-256 (RFC 2104) of the end's name.
    """
    return hmac.new(nonce, b"kakeya road " + end.encode(), hashlib.sha256).digest()


def is_proof(said: bytes, nonce: bytes, end: str) -> bool:
    """Whether that end said it; takes equally long either way."""
    return hmac.compare_digest(said, proof(nonce, end))
