"""What a model keeps of its history, layer by layer, and how positions are placed.

Pure: both back ends make their caches from this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.positions import (
    ContiguousPlacement,
    Placement,
    contiguous_placement,
    ring_placement,
)
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind
from kakeya_fleet.engine.errors import BadParameters, KvStrategyUnsupported

SINK_ALLOWANCE = 256
VECTOR_BYTES = 4
"""Of one value of a context vector: float32."""


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """A layer with keys and values of its own.

    `groups` query heads share each of `kv_heads`. With `sliding_window` a query
    sees that many positions, its own included; None sees all.
    """

    kv_heads: int
    groups: int
    head_dim: int
    sliding_window: int | None = None


@dataclass(frozen=True, slots=True)
class SharedLayer:
    """A layer that attends to the keys and values of layer `source`, an earlier one."""

    source: int


@dataclass(frozen=True, slots=True)
class RecurrentLayer:
    """A layer with a state of `state_bytes` instead of keys; rolled back by a snapshot.

    `state_bytes` are all bytes that a cache keeps for it, snapshots included.
    """

    state_bytes: int


Layer = AttentionLayer | SharedLayer | RecurrentLayer


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Attention layers that are placed alike. `layers` are indices into the model's."""

    layers: tuple[int, ...]
    shape: AttentionLayer

    def bytes_per_slot(self, item_bytes: int) -> int:
        """Bytes of one position's keys and values over these layers."""
        return 2 * len(self.layers) * self.shape.kv_heads * self.shape.head_dim * item_bytes


@dataclass(frozen=True)
class KvLayout:
    """All layers of a model, its positions, and the bytes of a number in its K/V."""

    layers: tuple[Layer, ...]
    context_length: int
    item_bytes: int

    @cached_property
    def groups(self) -> tuple[LayerGroup, ...]:
        """The attention layers by shape, in the order of their first layer."""
        found: dict[AttentionLayer, list[int]] = {}
        for index, layer in enumerate(self.layers):
            if isinstance(layer, AttentionLayer):
                found.setdefault(layer, []).append(index)
        return tuple(LayerGroup(tuple(layers), shape) for shape, layers in found.items())

    @property
    def restored_groups(self) -> tuple[LayerGroup, ...]:
        """The groups that see all of the history: what a `restored` cache evicts."""
        return tuple(group for group in self.groups if group.shape.sliding_window is None)

    @property
    def history_layer_count(self) -> int:
        """Layers that attend to all of the history, with keys of their own or another layer's."""
        owners = {index for group in self.restored_groups for index in group.layers}
        shared = [layer.source for layer in self.layers if isinstance(layer, SharedLayer)]
        return len(owners) + sum(source in owners for source in shared)

    @property
    def shallow_depth(self) -> int:
        """Layers of the shortest prefix that has every kind of layer."""
        kinds = [SharedLayer if isinstance(layer, SharedLayer) else layer for layer in self.layers]
        return max(kinds.index(kind) for kind in set(kinds)) + 1

    def prefix(self, depth: int) -> KvLayout:
        """The layout of the first `depth` layers."""
        return replace(self, layers=self.layers[:depth])

    @property
    def state_bytes(self) -> int:
        """Bytes of the recurrent layers' states in one cache."""
        return sum(layer.state_bytes for layer in self.layers if isinstance(layer, RecurrentLayer))

    @property
    def bytes_per_token(self) -> int:
        """K/V bytes of one position in the layers that see all of the history."""
        return sum(group.bytes_per_slot(self.item_bytes) for group in self.restored_groups)

    @property
    def fixed_bytes(self) -> int:
        """Bytes that a cache takes besides: sliding windows and states.

        An upper bound for caches of up to `SINK_ALLOWANCE` sink positions.
        """
        return self.state_bytes + sum(
            self._sliding_slots(group.shape.sliding_window) * group.bytes_per_slot(self.item_bytes)
            for group in self.groups
            if group.shape.sliding_window is not None
        )

    def _sliding_slots(self, sliding_window: int) -> int:
        """The most slots of a layer that sees `sliding_window` positions."""
        ring = ring_placement(SINK_ALLOWANCE, sliding_window, self.context_length)
        whole = contiguous_placement(min(sliding_window, self.context_length))
        return max(ring.slots, whole.slots)

    def check(self, spec: CacheSpec) -> None:
        """Raises `BadParameters` or `KvStrategyUnsupported` for a cache that cannot be."""
        if spec.grows and not spec.keeps_all:
            raise BadParameters(
                f"a {spec.kind} cache does not grow: its memory is that of its window",
                kind=str(spec.kind),
            )
        if spec.keeps_all and not 1 <= spec.capacity <= self.context_length:
            raise BadParameters(
                f"capacity {spec.capacity} is outside 1..{self.context_length}, "
                "the model's positions",
                capacity=str(spec.capacity),
            )
        if spec.kind is not CacheKind.CONTIGUOUS and (spec.sink < 0 or spec.window < 1):
            raise BadParameters(
                f"sink {spec.sink} and window {spec.window}: sink must be at least 0, "
                "window at least 1",
                sink=str(spec.sink),
                window=str(spec.window),
            )
        if spec.hands_over:
            self._check_handed_over(spec)
        if spec.kind is CacheKind.RESTORED:
            self._check_restorer(spec)

    def _check_handed_over(self, spec: CacheSpec) -> None:
        if not self.restored_groups:
            raise KvStrategyUnsupported(
                "no layer of this model sees all of the history, so nothing is evicted that"
                " could be restored or packed; its full cache is as small",
                kind=str(spec.kind),
            )
        if spec.kind is CacheKind.PACKED and not spec.codec:
            raise BadParameters("a packed cache needs a codec", codec="")
        if spec.sink % spec.tile:
            raise BadParameters(
                f"a sink of {spec.sink} positions is no multiple of the {spec.tile} that are"
                " packed together",
                sink=str(spec.sink),
            )
        self._check_codec(spec.packed_by)

    def _check_codec(self, codec: str) -> None:
        """Raises `BadParameters` for a codec that is not known, or cannot pack such heads."""
        try:
            for group in self.restored_groups if codec else ():
                codec_named(codec).tile_bytes(group.shape.head_dim)
        except CodecRefused as refused:
            raise BadParameters(
                f"what leaves this model's window cannot be packed: {refused}; or keep it lossless",
                codec=codec,
            ) from refused

    def _check_restorer(self, spec: CacheSpec) -> None:
        restorer = spec.restorer
        if restorer is None:
            raise BadParameters("a restored cache needs a restorer", restorer="")
        if (restorer.width > 0) != (restorer.kind is RestorerKind.PROJECTION):
            raise BadParameters(
                f"context vectors of {restorer.width} values for the restorer {restorer.kind}",
                restorer=str(restorer.kind),
            )

    def placement(self, group: LayerGroup, spec: CacheSpec) -> Placement:
        """Where `group` keeps which position in a cache of `spec`; see `check` for errors."""
        self.check(spec)
        sliding = group.shape.sliding_window
        if spec.hands_over and sliding is not None:
            # What it evicts no query sees: there is nothing to restore.
            return ring_placement(0, sliding, self.context_length)
        if spec.kind is CacheKind.CONTIGUOUS:
            if sliding is None or sliding >= spec.capacity:
                return contiguous_placement(spec.capacity)
            return ring_placement(0, sliding, self.context_length)
        if sliding is None:
            return ring_placement(
                spec.sink,
                spec.window,
                self.context_length,
                tile=spec.tile,
                is_wide=spec.kind is CacheKind.PACKED,
            )
        if sliding <= spec.window:
            return ring_placement(0, sliding, self.context_length)
        return ring_placement(spec.sink, spec.window, self.context_length, reach=sliding)

    def vector_placement(self, spec: CacheSpec) -> Placement | None:
        """Where a cache keeps context vectors until they are evicted; None if it has none."""
        self.check(spec)
        restorer = spec.restorer if spec.kind is CacheKind.RESTORED else None
        if restorer is None or not restorer.width:
            return None
        return self.placement(self.restored_groups[0], spec)

    def vector_bytes(self, spec: CacheSpec) -> int:
        """Bytes of the context vectors of a cache of `spec`."""
        placement = self.vector_placement(spec)
        if placement is None or spec.restorer is None:
            return 0
        return placement.slots * spec.restorer.width * VECTOR_BYTES

    def grows(self, group: LayerGroup, spec: CacheSpec) -> bool:
        """Whether `group` takes segments as the history reaches them."""
        return spec.grows and isinstance(self.placement(group, spec), ContiguousPlacement)

    def first_segments(self, group: LayerGroup, spec: CacheSpec) -> tuple[int, ...]:
        """Slots of the segments that a new cache of `spec` takes at once for `group`."""
        placement = self.placement(group, spec)
        return (
            placement.segments[: placement.used(1)]
            if self.grows(group, spec)
            else (placement.segments)
        )

    def packed_bytes(self, spec: CacheSpec, end: int) -> int:
        """Bytes of what a `packed` cache keeps in tiles of a history of `end` positions."""
        if spec.kind is not CacheKind.PACKED:
            return 0
        tiles = contiguous_placement(spec.handed_over_end(end)).slots // spec.tile
        codec = codec_named(spec.codec)
        return tiles * sum(
            len(group.layers) * group.shape.kv_heads * codec.tile_bytes(group.shape.head_dim)
            for group in self.restored_groups
        )

    def bytes_needed(self, spec: CacheSpec) -> int:
        """Bytes of all tensors of a new cache of `spec`."""
        self.check(spec)
        return (
            self.state_bytes
            + self.vector_bytes(spec)
            + (0 if spec.grows else self.packed_bytes(spec, spec.capacity))
            + sum(
                sum(self.first_segments(group, spec)) * group.bytes_per_slot(self.item_bytes)
                for group in self.groups
            )
        )
