"""What mlx-lm's layers see as their caches during one forward of one feed."""

from __future__ import annotations

import mlx.core as mx

from kakeya_fleet.engine.backends.mlx_backend.recurrent import RecurrentFeed, RecurrentState
from kakeya_fleet.engine.contracts.kv_layout import (
    KvLayout,
    LayerGroup,
    RecurrentLayer,
    SharedLayer,
)
from kakeya_fleet.engine.kv.feed import FeedSegments, Masks
from kakeya_fleet.engine.kv.slab_cache import SlabCache
from kakeya_fleet.engine.kv.slot_writes import Write

ArrayCache = SlabCache[mx.array, RecurrentState]


class AttentionFeed:
    """One attention layer's way into a cache.

    `update_and_fetch` writes the tokens' keys and values (padding rows write
    nothing) and hands back the layer's segments, which this engine's own
    attention reads. The library's layers pass them through.
    """

    def __init__(
        self,
        cache: ArrayCache,
        layer: int,
        count: int,
        writes: dict[LayerGroup, list[Write]],
        masks: dict[LayerGroup, Masks[mx.array]],
    ) -> None:
        self.offset = cache.length
        """The position of the first row."""
        self._cache = cache
        self._layer = layer
        self._count = count
        self._writes = writes
        self._masks = masks

    def make_mask(self, _rows: int, **_: object) -> None:
        """Nothing: masks come with the segments."""

    def update_and_fetch(
        self, keys: mx.array, values: mx.array
    ) -> tuple[FeedSegments[mx.array], FeedSegments[mx.array]]:
        """Writes keys and values [1, kv_heads, rows, head_dim]; the layer's segments, twice."""
        count = self._count
        self._cache.write(self._layer, self._writes, keys[0, :, :count], values[0, :, :count])
        segments = self._cache.read(self._layer, self._masks)
        return segments, segments


LayerFeed = AttentionFeed | RecurrentFeed | None


def layer_feeds(layout: KvLayout, cache: ArrayCache, count: int, rows: int) -> list[LayerFeed]:
    """Each layer's way into `cache` for its next `count` tokens, in a forward of `rows`.

    None for a layer that attends to another's keys: the library hands them on.
    """
    masks = {group: cache.masks(group, 0, count, rows) for group in cache.groups}
    writes = cache.prepare(count)
    feeds: list[LayerFeed] = []
    for index, layer in enumerate(layout.layers):
        if isinstance(layer, SharedLayer):
            feeds.append(None)
        elif isinstance(layer, RecurrentLayer):
            feeds.append(RecurrentFeed(cache.states[index], count))
        else:
            feeds.append(AttentionFeed(cache, index, count, writes, masks))
    return feeds
