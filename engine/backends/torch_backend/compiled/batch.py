"""Where a forward's rows read and write their keys and values, as the library takes it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import cast

from kakeya_fleet.engine.backends.torch_backend.compiled.decoder import Buffers
from kakeya_fleet.engine.backends.torch_backend.compiled.grids import packed_segments
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import (
    Batch,
    Feed,
    PackedSegments,
    Segment,
    Store,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.tapped import Tapped
from kakeya_fleet.engine.backends.torch_backend.forward_step import TensorCache
from kakeya_fleet.engine.backends.torch_backend.kernels import TorchSegment
from kakeya_fleet.engine.backends.torch_backend.rotary import AngleBlocks
from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.contracts.kv_layout import KvLayout, LayerGroup
from kakeya_fleet.engine.contracts.positions import (
    ContiguousPlacement,
    Placement,
    RingPlacement,
)


class LayerPlaces:
    """Of which group of a layout each layer is, and where in it: as the library takes it."""

    def __init__(self, layout: KvLayout) -> None:
        places = {
            layer: (group, index)
            for group, each in enumerate(layout.groups)
            for index, layer in enumerate(each.layers)
        }
        layers = [places[layer] for layer in range(len(layout.layers))]
        self.layer_groups = layout.groups
        self.groups = _integers([group for group, _ in layers])
        self.places = _integers([place for _, place in layers])
        self.no_taps = _integers([-1] * len(layers))


class BatchOf:
    """The struct of one forward, with all that it points to."""

    def __init__(
        self,
        layers: LayerPlaces,
        caches: Sequence[TensorCache],
        counts: Sequence[int],
        angles: AngleBlocks,
        buffers: Buffers,
        tapped: Tapped,
    ) -> None:
        """`caches` are prepared for the next `counts[i]` positions."""
        taps = layers.no_taps
        if tapped.taps:
            taps = _integers([tapped.place(layer) for layer in range(len(taps))])
        self.tapped = tapped
        self._angles, row = angles.placed(
            [(cache.length, count) for cache, count in zip(caches, counts, strict=True)]
        )
        cosines, sines = self._angles.addresses(row)
        self._kept: list[object] = []
        feeds = []
        first = 0
        for cache, count in zip(caches, counts, strict=True):
            stores = [
                _store(cache, group, cache.length + count, self._kept)
                for group in layers.layer_groups
            ]
            array = (Store * len(stores))(*stores)
            self._kept.append(array)
            feeds.append(Feed(array, first, count, cache.length))
            first += count
        self._feeds = (Feed * len(feeds))(*feeds)
        self.struct = Batch(
            feeds=self._feeds,
            feed_count=len(feeds),
            rows=first,
            group_of_layer=layers.groups,
            place_of_layer=layers.places,
            cosines=cosines,
            sines=sines,
            **buffers.addresses,
            tap_of_layer=taps,
            taps=len(tapped.taps),
            tapped=tapped.outputs.data_ptr() if tapped.taps else None,
        )


def _integers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * len(values))(*values)


def reads_packed(cache: TensorCache) -> bool:
    """Whether the library itself attends to all that the cache has packed."""
    return all(
        packed_segments(codec_named(cache.spec.codec), group.shape.head_dim) is not None
        for group in cache.groups
        if cache.packed_store(group) is not None
    )


def _store(cache: TensorCache, group: LayerGroup, end: int, kept: list[object]) -> Store:
    """A cache's slots as far as positions below `end` take them, and what it has packed."""
    store = cache.store(group)
    slabs = store.slabs[: store.placement.used(end)]
    segments = (Segment * len(slabs))(
        *(
            Segment(cast(TorchSegment, slab.payload).address, keys)
            for slab, keys in zip(slabs, store.placement.segments, strict=False)
        )
    )
    kept.append(segments)
    found = Store(segments, len(slabs), len(group.layers), *_rule(store.placement))
    packed = _packed(cache, group)
    if packed is not None:
        kept.append(packed)
        found.packed = ctypes.pointer(packed)
    return found


def _packed(cache: TensorCache, group: LayerGroup) -> PackedSegments | None:
    """What a cache has packed of the layers of `group`, as the library reads it; else None."""
    store = cache.packed_store(group)
    found = (
        packed_segments(codec_named(cache.spec.codec), group.shape.head_dim)
        if store is not None
        else None
    )
    if store is None or found is None:
        return None
    segments = (Segment * len(store.slabs))(
        *(
            Segment(slab.payload.arrays[0].ctypes.data, keys)
            for slab, keys in zip(store.slabs, store.placement.segments, strict=True)
        )
    )
    found.segments = segments
    found.segment_count = len(segments)
    return found


def _rule(placement: Placement) -> tuple[int, int, int, int, int, int]:
    """Origin, sink, window, ring, reach and tile; see `decoder.h`."""
    if isinstance(placement, ContiguousPlacement):
        return placement.origin, 0, 0, 0, 0, 1
    if isinstance(placement, RingPlacement):
        layout = placement.layout
        return 0, layout.sink, layout.window, layout.ring, placement.reach or 0, layout.tile
    raise TypeError(f"nothing is known of the slots of a {type(placement).__name__}")
