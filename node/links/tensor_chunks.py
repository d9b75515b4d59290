"""Tensors in chunks, and together again: the same for every purpose and transport.

A direction of a stream carries one tensor after the other, each in chunks of at
most `CHUNK_BYTES` from front to back. What does not keep to that ends the link;
a tensor that keeps to it but came corrupt is dropped alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from kakeya.v1 import tensor_pb2 as wire
from node.links.crc32c import crc32c
from node.links.refused_tensor import RefusedTensor, TensorFault
from node.links.wire_tensor import ITEM_BYTES, WireTensor, tensor_bytes
from node.rpc.refusals import TensorOutOfOrder

CHUNK_BYTES = 1 << 20
MAX_NAME_CHARACTERS = 64
MAX_DIMENSIONS = 8
# Sizes whose product Python must not be made to compute.
_MAX_SIZE = 1 << 40


def chunks_of(tensor: WireTensor, link_id: str, tensor_id: int) -> Iterator[wire.TensorChunk]:
    """The tensor's chunks in order, one of no bytes for a tensor of none."""
    view = tensor.data
    for offset in range(0, max(1, len(view)), CHUNK_BYTES):
        # A small tensor's bytes are not copied.
        data = bytes(view[offset : offset + CHUNK_BYTES])
        chunk = wire.TensorChunk(
            link_id=link_id,
            tensor_id=tensor_id,
            offset_bytes=offset,
            data=data,
            crc32c=crc32c(data),
        )
        if offset == 0:
            chunk.name = tensor.name
            chunk.dtype = tensor.dtype
            chunk.shape.extend(tensor.shape)
            chunk.first_position = tensor.first_position
        yield chunk


class TensorAssembler:
    """Puts the chunks of one direction together; holds one tensor of `most_bytes` at most.

    The first tensor has the id 1.
    """

    def __init__(self, link_id: str, most_bytes: int) -> None:
        self._link_id = link_id
        self._most_bytes = most_bytes
        self._last_id = 0
        self._head: wire.TensorChunk | None = None
        self._total = 0
        self._data = bytearray()
        self._is_corrupt = False

    def add(self, chunk: wire.TensorChunk) -> WireTensor | None:
        """The tensor that `chunk` completes; None while it is not complete.

        Raises `TensorOutOfOrder`, after which nothing more can be taken, and
        `RefusedTensor` (CORRUPT) instead of a tensor with a wrong checksum.
        """
        if chunk.link_id != self._link_id:
            raise TensorOutOfOrder(f"a chunk is for link {chunk.link_id[:64]!r}")
        if len(chunk.data) > CHUNK_BYTES:
            raise TensorOutOfOrder(f"a chunk has {len(chunk.data)} bytes, more than {CHUNK_BYTES}")
        head = self._head or self._begun(chunk)
        if chunk.tensor_id != head.tensor_id or chunk.offset_bytes != len(self._data):
            raise TensorOutOfOrder(
                f"chunk {chunk.offset_bytes} of tensor {chunk.tensor_id} came where "
                f"{len(self._data)} of tensor {head.tensor_id} was due"
            )
        missing = self._total - len(self._data)
        if len(chunk.data) > missing or (missing and not chunk.data):
            raise TensorOutOfOrder(f"a chunk has {len(chunk.data)} bytes, {missing} are missing")
        self._data += chunk.data
        self._is_corrupt |= crc32c(chunk.data) != chunk.crc32c
        if len(self._data) < self._total:
            return None
        return self._completed(head)

    def _begun(self, chunk: wire.TensorChunk) -> wire.TensorChunk:
        """The first chunk of a tensor, whose sizes say what is to come."""
        if chunk.tensor_id != self._last_id + 1:
            raise TensorOutOfOrder(
                f"tensor {chunk.tensor_id} came where {self._last_id + 1} was due"
            )
        sizes = tuple(chunk.shape)
        if (
            not 0 < len(chunk.name) <= MAX_NAME_CHARACTERS
            or chunk.dtype not in ITEM_BYTES
            or len(sizes) > MAX_DIMENSIONS
            or max(sizes, default=0) > _MAX_SIZE
        ):
            raise TensorOutOfOrder("the first chunk of a tensor says its name, format and sizes")
        total = tensor_bytes(chunk.dtype, sizes)
        if total > self._most_bytes:
            raise TensorOutOfOrder(
                f"a tensor of {total} bytes is more than the {self._most_bytes} of this link"
            )
        self._head, self._total = chunk, total
        return chunk

    def _completed(self, head: wire.TensorChunk) -> WireTensor:
        data, self._data = self._data, bytearray()
        is_corrupt, self._is_corrupt = self._is_corrupt, False
        self._head = None
        self._last_id = head.tensor_id
        if is_corrupt:
            raise RefusedTensor(
                TensorFault.CORRUPT, f"the checksum of {head.name!r} is not that of its bytes"
            )
        return WireTensor(
            head.name, head.dtype, tuple(head.shape), memoryview(data), head.first_position
        )
