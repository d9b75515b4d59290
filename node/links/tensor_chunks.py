"""Tensors in chunks, and together again: the same for every purpose and transport.

A direction of a stream carries one tensor after the other, each in chunks of at
most `CHUNK_BYTES` from front to back. What does not keep to that ends the link;
a tensor that keeps to it but came corrupt is dropped alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.crc32c import crc32c
from kakeya_fleet.node.links.delivery import Arrivals
from kakeya_fleet.node.links.refused_tensor import RefusedTensor, TensorFault
from kakeya_fleet.node.links.wire_tensor import ITEM_BYTES, WireTensor, tensor_bytes
from kakeya_fleet.node.rpc.refusals import TensorOutOfOrder

CHUNK_BYTES = 1 << 20
MAX_NAME_CHARACTERS = 64
MAX_DIMENSIONS = 8
# Sizes whose product Python must not be made to compute.
_MAX_SIZE = 1 << 40
_NO_BYTES = memoryview(b"")


def fill_chunk(
    chunk: wire.TensorChunk, tensor: WireTensor, link_id: str, tensor_id: int, offset: int
) -> None:
    """Makes an empty chunk the tensor's chunk from `offset` on; copies its bytes."""
    data = bytes(tensor.data[offset : offset + CHUNK_BYTES])
    chunk.link_id = link_id
    chunk.tensor_id = tensor_id
    chunk.offset_bytes = offset
    chunk.data = data
    chunk.crc32c = crc32c(data)
    if offset == 0:
        chunk.name = tensor.name
        chunk.dtype = tensor.dtype
        chunk.shape.extend(tensor.shape)
        chunk.first_position = tensor.first_position


def offsets_of(tensor: WireTensor) -> range:
    """Where its chunks begin; one chunk of no bytes for a tensor of none."""
    return range(0, max(1, len(tensor.data)), CHUNK_BYTES)


def chunks_of(tensor: WireTensor, link_id: str, tensor_id: int) -> Iterator[wire.TensorChunk]:
    """The tensor's chunks in order."""
    for offset in offsets_of(tensor):
        chunk = wire.TensorChunk()
        fill_chunk(chunk, tensor, link_id, tensor_id, offset)
        yield chunk


def check_head(head: wire.TensorChunk | wire.TensorAnnouncement, most_bytes: int) -> int:
    """The bytes of a tensor that comes. Raises `TensorOutOfOrder` unless it may."""
    sizes = tuple(head.shape)
    if (
        not 0 < len(head.name) <= MAX_NAME_CHARACTERS
        or head.dtype not in ITEM_BYTES
        or len(sizes) > MAX_DIMENSIONS
        or max(sizes, default=0) > _MAX_SIZE
    ):
        raise TensorOutOfOrder("the first chunk of a tensor says its name, format and sizes")
    total = tensor_bytes(head.dtype, sizes)
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
        self._head: wire.TensorChunk | None = None
        self._total = 0
        self._data = _NO_BYTES
        self._end = 0
        self._is_corrupt = False

    def add(self, chunk: wire.TensorChunk) -> WireTensor | None:
        """The tensor that `chunk` completes; None while it is not complete.

        Raises `TensorOutOfOrder`, after which nothing more can be taken, and
        `RefusedTensor` (CORRUPT) instead of a tensor with a wrong checksum.
        """
        piece = self.place(chunk)
        self.copy(piece)
        return self.complete() if piece.is_last else None

    def place(self, chunk: wire.TensorChunk) -> Piece:
        """Where the chunk belongs. Raises `TensorOutOfOrder`."""
        # Each access copies it.
        data = chunk.data
        if chunk.link_id != self._link_id:
            raise TensorOutOfOrder(f"a chunk is for link {chunk.link_id[:64]!r}")
        if len(data) > CHUNK_BYTES:
            raise TensorOutOfOrder(f"a chunk has {len(data)} bytes, more than {CHUNK_BYTES}")
        head = self._head or self._begun(chunk, len(data))
        if chunk.tensor_id != head.tensor_id or chunk.offset_bytes != self._end:
            raise TensorOutOfOrder(
                f"chunk {chunk.offset_bytes} of tensor {chunk.tensor_id} came where "
                f"{self._end} of tensor {head.tensor_id} was due"
            )
        missing = self._total - self._end
        if len(data) > missing or (missing and not data):
            raise TensorOutOfOrder(f"a chunk has {len(data)} bytes, {missing} are missing")
        offset, self._end = self._end, self._end + len(data)
        return Piece(data, chunk.crc32c, offset, self._end == self._total)

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
        return WireTensor(head.name, head.dtype, tuple(head.shape), data, head.first_position)

    def _begun(self, chunk: wire.TensorChunk, byte_count: int) -> wire.TensorChunk:
        """The first chunk of a tensor, whose sizes say what is to come."""
        total = check_head(chunk, self._most_bytes)
        self._arrivals.begin(chunk.tensor_id)
        self._total, self._end = total, 0
        self._head = chunk
        if total <= byte_count:
            return chunk
        # Not filled before its bytes come: a size that is only said takes no memory.
        self._data = np.empty(total, np.uint8).data
        # Its bytes are not kept a second time.
        self._head = wire.TensorChunk(
            tensor_id=chunk.tensor_id,
            name=chunk.name,
            dtype=chunk.dtype,
            shape=chunk.shape,
            first_position=chunk.first_position,
        )
        return self._head
