"""What transformers' layers see as their cache during one forward over several feeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.attention import LayerSegments
from kakeya_fleet.engine.backends.torch_backend.recurrent import RecurrentState
from kakeya_fleet.engine.contracts.kv_layout import LayerGroup
from kakeya_fleet.engine.kv.feed import Masks
from kakeya_fleet.engine.kv.slab_cache import SlabCache
from kakeya_fleet.engine.kv.slot_writes import Write

TensorCache = SlabCache[Tensor, RecurrentState]

LEAST_PRODUCT_ROWS = 4
"""Products of fewer rows take other kernels, and with them another rounding."""
FINE_QUERIES = (1, 2)
"""Queries of a head in a product besides the row counts, where the smallest of those agrees."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One feed's rows, and where its keys and values go."""

    cache: TensorCache
    rows: slice
    writes: dict[LayerGroup, list[Write]]
    masks: dict[LayerGroup, Masks[Tensor]]


class ForwardStep:
    """One forward's way into the caches of its feeds.

    `update` writes the real rows' keys and values (padding rows write nothing)
    and hands back the layer's segments, which only this engine's own attention
    function can read. The library's layers pass them through.
    """

    def __init__(
        self, caches: Sequence[TensorCache], counts: Sequence[int], row_counts: Sequence[int]
    ) -> None:
        """The next `counts[i]` tokens of `caches[i]`, in rows one feed after the other.

        `row_counts`, ascending, are those of the forward; a product with keys may
        have fewer queries of a head than the smallest, as its heads add up.
        """
        queries = (
            (*FINE_QUERIES, *row_counts) if row_counts[0] == LEAST_PRODUCT_ROWS else row_counts
        )
        self._parts: list[_Part] = []
        for cache, count in zip(caches, counts, strict=True):
            # Before anything is written: what leaves a window may be written over.
            cache.evict(count)
        first = 0
        for cache, count in zip(caches, counts, strict=True):
            masks = {
                group: cache.masks(group, first, count, _queries(group, count, queries))
                for group in cache.groups
            }
            rows = slice(first, first + count)
            self._parts.append(_Part(cache, rows, cache.prepare(count), masks))
            first += count
        self.rows = first
        """Of the forward's rows so many are tokens."""

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[LayerSegments, LayerSegments]:
        """Writes keys and values [1, kv_heads, rows, head_dim] of one layer."""
        segments: LayerSegments = []
        for part in self._parts:
            of = part.rows
            part.cache.write(layer_idx, part.writes, keys[0, :, of], values[0, :, of])
            segments.append(part.cache.read(layer_idx, part.masks))
        return segments, segments

    @contextmanager
    def abandoned_on_error(self) -> Iterator[None]:
        """Drops what was asked of the caches' stores when the forward fails."""
        try:
            yield
        except BaseException:
            for part in self._parts:
                if part.cache.evicted is not None:
                    part.cache.evicted.abandon()
            raise

    def recurrent(self, layer_idx: int) -> list[tuple[slice, RecurrentState]]:
        """Each feed's rows and its state of a recurrent layer."""
        return [(part.rows, part.cache.states[layer_idx]) for part in self._parts]


def _queries(group: LayerGroup, count: int, choices: Sequence[int]) -> int:
    """Queries of a head in a product: enough for `count`, and for a kernel that agrees."""
    least = max(count, -(-LEAST_PRODUCT_ROWS // group.shape.groups))
    return next(queries for queries in choices if queries >= least)
