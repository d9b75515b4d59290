"""Tensors in chunks, and together again: the same for every purpose and transport.

A direction of a stream carries one tensor after the other, each in chunks of at
most `CHUNK_BYTES` from front to back. What does not keep to that ends the link;
a tensor that keeps to it but came corrupt is dropped alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import google_crc32c
import numpy as np

from kakeya_fleet.node.links.protocol.delivery import Arrivals
from kakeya_fleet.node.links.protocol.messages import Chunk, TensorHead, head_of
from kakeya_fleet.node.links.protocol.tensor import WireTensor, tensor_bytes
from kakeya_fleet.node.rpc.refusals import TensorOutOfOrder

CHUNK_BYTES = 1 << 20
MAX_NAME_CHARACTERS = 64
MAX_DIMENSIONS = 8
# Sizes whose product Python must not be made to compute.
_MAX_SIZE = 1 << 40
_NO_BYTES = memoryview(b"")


class TensorFault(StrEnum):
    """What is wrong with a tensor that is not taken; the label of its metric."""

    CORRUPT = "corrupt"
    NOT_FINITE = "not_finite"
    WRONG_SHAPE = "wrong_shape"
    OUT_OF_ORDER = "out_of_order"


class RefusedTensor(Exception):
    """A tensor that is dropped alone: the link goes on."""

    def __init__(self, fault: TensorFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """CRC-32C (Castagnoli; RFC 3720, appendix B.4) of `data`, 0 to 2**32 - 1."""
    # The library takes no memory that can be written, unless an array shows it.
    readable = data if isinstance(data, bytes) else np.frombuffer(data, np.uint8)
    return int(google_crc32c.value(readable))


def chunk_of(
    tensor: WireTensor, link_id: str, tensor_id: int, offset: int, size: int = CHUNK_BYTES
) -> Chunk:
    """The tensor's chunk from `offset` on; copies its bytes."""
    data = bytes(tensor.data[offset : offset + size])
    head = head_of(tensor) if offset == 0 else None
    return Chunk(link_id, tensor_id, offset, data, crc32c(data), head)


def offsets_of(tensor: WireTensor, size: int = CHUNK_BYTES) -> range:
    """Where its chunks begin; one chunk of no bytes for a tensor of none."""
    return range(0, max(1, len(tensor.data)), size)


def check_head(head: TensorHead, most_bytes: int) -> int:
    """The bytes of a tensor that comes. Raises `TensorOutOfOrder` unless it may."""
    if (
        not 0 < len(head.name) <= MAX_NAME_CHARACTERS
        or len(head.shape) > MAX_DIMENSIONS
        or max(head.shape, default=0) > _MAX_SIZE
    ):
        raise TensorOutOfOrder("the first chunk of a tensor says its name, format and sizes")
    total = tensor_bytes(head.dtype, head.shape)
    if total > most_bytes:
        raise TensorOutOfOrder(
            f"a tensor of {total} bytes is more than the {most_bytes} of this link"
        )
    return total


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk whose place is known: the last one of its tensor, or not."""

    data: bytes
    crc32c: int
    offset: int
    is_last: bool


class TensorAssembler:
    """Puts the chunks of one direction together; holds one tensor of `most_bytes` at most.

    `place` and `complete` belong to one thread; `copy`, which takes the time, may be
    called in another between them.
    """

    def __init__(self, link_id: str, most_bytes: int, arrivals: Arrivals | None = None) -> None:
        """`arrivals` says which tensor may begin."""
        self._link_id = link_id
        self._most_bytes = most_bytes
        self._arrivals = arrivals if arrivals is not None else Arrivals()
        self._head: TensorHead | None = None
        self._tensor_id = 0
        self._total = 0
        self._data = _NO_BYTES
        self._end = 0
        self._is_corrupt = False

    def add(self, chunk: Chunk) -> WireTensor | None:
        """The tensor that `chunk` completes; None while it is not complete.

        Raises `TensorOutOfOrder`, after which nothing more can be taken, and
        `RefusedTensor` (CORRUPT) instead of a tensor with a wrong checksum.
        """
        piece = self.place(chunk)
        self.copy(piece)
        return self.complete() if piece.is_last else None

    def place(self, chunk: Chunk) -> Piece:
        """Where the chunk belongs. Raises `TensorOutOfOrder`."""
        size = len(chunk.data)
        if chunk.link_id != self._link_id:
            raise TensorOutOfOrder(f"a chunk is for link {chunk.link_id[:64]!r}")
        if size > CHUNK_BYTES:
            raise TensorOutOfOrder(f"a chunk has {size} bytes, more than {CHUNK_BYTES}")
        if self._head is None:
            self._begin(chunk)
        if chunk.tensor_id != self._tensor_id or chunk.offset != self._end:
            raise TensorOutOfOrder(
                f"chunk {chunk.offset} of tensor {chunk.tensor_id} came where "
                f"{self._end} of tensor {self._tensor_id} was due"
            )
        missing = self._total - self._end
        if size > missing or (missing and not size):
            raise TensorOutOfOrder(f"a chunk has {size} bytes, {missing} are missing")
        offset, self._end = self._end, self._end + size
        return Piece(chunk.data, chunk.crc32c, offset, self._end == self._total)

    def copy(self, piece: Piece) -> None:
        """Takes the bytes, and checks them."""
        if piece.is_last and not piece.offset:
            self._data = memoryview(piece.data)
        else:
            self._data[piece.offset : piece.offset + len(piece.data)] = piece.data
        self._is_corrupt |= crc32c(piece.data) != piece.crc32c

    def complete(self) -> WireTensor:
        """The tensor, whose last piece was copied. Raises `RefusedTensor` (CORRUPT)."""
        head, self._head = self._head, None
        if head is None:
            raise ValueError("no tensor has begun")
        data, self._data = self._data, _NO_BYTES
        is_corrupt, self._is_corrupt = self._is_corrupt, False
        if is_corrupt:
            raise RefusedTensor(
                TensorFault.CORRUPT, f"the checksum of {head.name!r} is not that of its bytes"
            )
        return head.with_bytes(data)

    def _begin(self, chunk: Chunk) -> None:
        """Takes the first chunk of a tensor, whose sizes say what is to come."""
        if chunk.head is None:
            raise TensorOutOfOrder(
                f"chunk {chunk.offset} of tensor {chunk.tensor_id} came where its first was due"
            )
        self._total = check_head(chunk.head, self._most_bytes)
        self._arrivals.begin(chunk.tensor_id)
        self._head, self._tensor_id, self._end = chunk.head, chunk.tensor_id, 0
        if self._total > len(chunk.data):
            # Not filled before its bytes come: a size that is only said takes no memory.
            self._data = np.empty(self._total, np.uint8).data
