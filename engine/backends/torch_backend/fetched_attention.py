"""Attention to evicted keys and values that come chunk by chunk, on torch.

The products, masks, segments and their order are those of
`engine.restoration.segment_store.SegmentStore`, and so are the
bits. In memory are the numbers and the scores of one chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.dtypes import raw, torch_dtype
from kakeya_fleet.engine.backends.torch_backend.kernels import TorchKernels
from kakeya_fleet.engine.backends.torch_backend.segment_products import merged, partial_attention
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedQueries, PartialAttention, Raw
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer
from kakeya_fleet.engine.contracts.positions import contiguous_placement
from kakeya_fleet.engine.kv.chunks import Run, chunks
from kakeya_fleet.engine.kv.feed import FeedSegments, Masks, Partial
from kakeya_fleet.engine.restoration.evicted_blocks import (
    BlockMasks,
    block_partial,
    blocks,
    joined_blocks,
    nothing_seen,
    padded_rows,
)


@dataclass(slots=True)
class _Block:
    """Some of the queries that ask: rows of one product, and what they found so far."""

    masks: Masks[Tensor]
    rows: Tensor
    found: Partial[Tensor] | None = None


class TorchFetchedAttention:
    """See `engine.restoration.keys_values_source.ChunkAttention`."""

    def __init__(self, shape: EvictedShape) -> None:
        self.shape = shape
        self.dtype = torch_dtype(shape.dtype)
        self.kernels = TorchKernels(shape.dtype)
        self.masks = BlockMasks(shape, self.kernels)
        self._segments: dict[tuple[AttentionLayer, int], list[Tensor]] = {}

    @property
    def memory_bytes(self) -> int:
        """Bytes of the tensors that a chunk is put into."""
        return sum(tensor.nbytes for tensors in self._segments.values() for tensor in tensors)

    def start(self, asked: EvictedQueries) -> TorchChunkFold:
        """Begins with the queries of a block."""
        counts = self.kernels.query_counts(self.shape.group_of[asked.layer].shape)
        return TorchChunkFold(self, asked, counts)

    def rest(self) -> None:
        """Gives back the memory of a chunk."""
        self._segments.clear()

    def segment(self, layer: AttentionLayer, keys: int, index: int) -> Tensor:
        """Memory [2, kv_heads, keys, head_dim] for the `index`-th such segment of a chunk.

        It holds zeros, or what another chunk of the same session left: finite,
        as a masked number must be.
        """
        tensors = self._segments.setdefault((layer, keys), [])
        while len(tensors) <= index:
            sizes = (2, layer.kv_heads, keys, layer.head_dim)
            tensors.append(torch.zeros(sizes, dtype=self.dtype))
        return tensors[index]


class TorchChunkFold:
    """See `engine.restoration.keys_values_source.ChunkFold`."""

    @torch.inference_mode()
    def __init__(
        self, attention: TorchFetchedAttention, asked: EvictedQueries, counts: tuple[int, ...]
    ) -> None:
        self._attention = attention
        self._asked = asked
        self._layer = attention.shape.group_of[asked.layer].shape
        end = asked.first + asked.queries.shape[1] - attention.shape.window
        self._placement = contiguous_placement(max(1, end))
        self._chunks = chunks(self._placement.segments)
        self._chunk = 0
        self._blocks = [self._block(row, count, counts) for row, count in self._cuts()]

    @torch.inference_mode()
    def put(self, first: int, keys_values: Raw) -> None:
        """Takes a copy of a piece of the chunk."""
        end = first + keys_values.shape[2]
        for start, target in self._targets():
            low, high = max(first, start), min(end, start + target.shape[2])
            if low < high:
                own = raw(target)[:, :, low - start : high - start]
                own[...] = keys_values[:, :, low - first : high - first]

    @torch.inference_mode()
    def fold(self) -> None:
        """Attends to the chunk."""
        tensors = [target for _start, target in self._targets()]
        keys = [tensor[0].transpose(1, 2) for tensor in tensors]
        values = [tensor[1] for tensor in tensors]
        for block in self._blocks:
            if block is None or self._chunk >= len(block.masks.chunks):
                continue
            feed = FeedSegments(_of_chunk(block.masks, self._chunk), keys, values)
            more = partial_attention(block.rows, feed, self._asked.scaling)
            block.found = more if block.found is None else merged(block.found, more)
        self._chunk += 1

    @torch.inference_mode()
    def partial(self) -> PartialAttention:
        """Attention to all chunks."""
        heads, _, head_dim = self._asked.queries.shape
        return joined_blocks(
            [
                nothing_seen(heads, count, head_dim)
                if block is None or block.found is None
                else block_partial(
                    self._attention.kernels, block.found, heads, block.masks.queries, count
                )
                for block, (_row, count) in zip(self._blocks, self._cuts(), strict=True)
            ]
        )

    def _cuts(self) -> list[tuple[int, int]]:
        return blocks(self._asked.queries.shape[1])

    def _block(self, row: int, count: int, counts: tuple[int, ...]) -> _Block | None:
        attention, asked = self._attention, self._asked
        layer = self._layer
        masks = attention.masks.of(self._placement, layer.groups, asked.first + row, count, counts)
        if masks is None:
            return None
        rows = padded_rows(attention.kernels, asked, row, count, masks.queries, layer.kv_heads)
        return _Block(masks, rows)

    def _targets(self) -> list[tuple[int, Tensor]]:
        """The chunk's segments with their first positions."""
        found = []
        chunk = self._chunks[self._chunk]
        start = sum(self._placement.segments[: chunk[0].first])
        for run in chunk:
            for index in range(run.last - run.first):
                found.append((start, self._attention.segment(self._layer, run.keys, index)))
                start += run.keys
        return found


def _of_chunk(masks: Masks[Tensor], index: int) -> Masks[Tensor]:
    """The masks of one chunk, as if its segments were the first."""
    chunk = masks.chunks[index]
    first, last = chunk[0].first, chunk[-1].last
    runs = tuple(Run(run.first - first, run.last - first, run.keys) for run in chunk)
    return replace(masks, chunks=(runs,), biases=masks.biases[first:last])
