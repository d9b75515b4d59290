"""A tensor taken apart, as a sender takes it one chunk after the other."""

from collections.abc import Iterator

from kakeya_fleet.node.links.protocol.chunks import CHUNK_BYTES, chunk_of, offsets_of
from kakeya_fleet.node.links.protocol.messages import Chunk
from kakeya_fleet.node.links.protocol.tensor import WireTensor


def chunks_of(
    tensor: WireTensor, link_id: str, tensor_id: int, size: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """The tensor's chunks in order."""
    for offset in offsets_of(tensor, size):
        yield chunk_of(tensor, link_id, tensor_id, offset, size)
