"""What torch computes for caches and stores: see `engine.kv.kernels`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.device import HOST, Device
from kakeya_fleet.engine.backends.torch_backend.dtypes import on_host, raw, torch_dtype
from kakeya_fleet.engine.backends.torch_backend.large_pages import empty_on_large_pages
from kakeya_fleet.engine.backends.torch_backend.product_rows import query_counts
from kakeya_fleet.engine.backends.torch_backend.segment_products import chunk_partials, merged
from kakeya_fleet.engine.codecs.kv_codec import KvCodec
from kakeya_fleet.engine.codecs.tile import Codec, Packed
from kakeya_fleet.engine.contracts.evicted_store import Floats, Raw
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, LayerGroup
from kakeya_fleet.engine.contracts.positions import Placement, RingPlacement
from kakeya_fleet.engine.contracts.raw_numbers import as_float32
from kakeya_fleet.engine.kv.feed import FeedSegments, Partial
from kakeya_fleet.engine.kv.kernels import PackedReads
from kakeya_fleet.engine.kv.slot_views import Seen
from kakeya_fleet.engine.kv.slot_writes import Write


class TorchSegment:
    """One tensor [layers, 2, kv_heads, slots, head_dim], sliced once so that no forward need."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: Device = HOST) -> None:
        self._device = device
        # One that is made within a forward is cleaned and written outside of it, too.
        with torch.inference_mode(mode=False):
            if device.is_host:
                self._tensor = empty_on_large_pages(*shape, dtype=dtype).zero_()
            else:
                self._tensor = torch.zeros(shape, dtype=dtype, device=device.place)
        self.keys = [keys.transpose(1, 2) for keys, _ in self._tensor]
        """By layer, [kv_heads, head_dim, slots]."""
        self.values = [values for _, values in self._tensor]
        """By layer, [kv_heads, slots, head_dim]."""
        self.address = self._tensor.data_ptr()
        """Of its first number."""

    @property
    def arrays(self) -> tuple[Tensor]:
        """All that it holds."""
        return (self._tensor,)

    def clear(self) -> None:
        """Makes all numbers 0."""
        self._tensor.zero_()

    def copy_from(self, other: TorchSegment) -> None:
        """Takes the numbers of `other`."""
        self._tensor.copy_(other._tensor)

    def fill(self, seed: int) -> None:
        """Random numbers in all slots."""
        on_host = self._device.is_host
        # The same numbers on every device: drawn on the host.
        drawn = self._tensor if on_host else torch.empty_like(self._tensor, device=HOST.place)
        drawn.normal_(generator=torch.Generator().manual_seed(seed))
        if not on_host:
            self._tensor.copy_(drawn)

    def write(self, layer: int, write: Write, keys: Tensor, values: Tensor) -> None:
        """Stores the tokens that `write` takes of keys and values [kv_heads, n, head_dim]."""
        slot, token, count = write.slot, write.token, write.count
        own_keys, own_values = keys.narrow(1, token, count), values.narrow(1, token, count)
        self.keys[layer].narrow(2, slot, count).copy_(own_keys.transpose(1, 2))
        self.values[layer].narrow(1, slot, count).copy_(own_values)

    def put(self, write: Write, numbers: Raw) -> None:
        """Stores what `write` takes of numbers [layers, 2, kv_heads, n, head_dim]."""
        own = numbers[:, :, :, write.token : write.token + write.count]
        slots = slice(write.slot, write.slot + write.count)
        if self._device.is_host:
            raw(self._tensor)[:, :, :, slots] = own
            return
        with torch.inference_mode():
            given = torch.tensor(own)
            typed = given.view(torch.bfloat16) if given.dtype == torch.uint16 else given
            self._tensor[:, :, :, slots].copy_(typed)

    def read(self, slot: int, count: int) -> Raw:
        """The numbers [layers, 2, kv_heads, count, head_dim] from `slot` on."""
        return raw(self._tensor[:, :, :, slot : slot + count])

    def read_layer(self, layer: int, slot: int, count: int) -> Raw:
        """One layer's of `read`."""
        return raw(self._tensor[layer, :, :, slot : slot + count])


class TorchKernels:
    """Torch's tensors in one number format, on one device."""

    packing = ""
    tile = 1

    def __init__(self, dtype: str, device: Device = HOST) -> None:
        """Raises `BadParameters` for another dtype than `float32` and `bfloat16`."""
        self.dtype = dtype
        self._device = device
        self.memory = "" if device.is_host else device.kind
        self._dtype = torch_dtype(dtype)
        self.item_bytes = self._dtype.itemsize

    def segment_bytes(self, group: LayerGroup, keys: int) -> int:
        """Bytes of a segment of `keys` slots for the layers of `group`."""
        return keys * group.bytes_per_slot(self.item_bytes)

    def segment(self, group: LayerGroup, keys: int) -> TorchSegment:
        """A segment of `keys` slots for the layers of `group`, all zeros."""
        shape = (len(group.layers), 2, group.shape.kv_heads, keys, group.shape.head_dim)
        return TorchSegment(shape, self._dtype, self._device)

    def settle(self, arrays: Iterable[Tensor]) -> None:
        """Nothing: what waits on a device is computed in the order in which it was asked for."""

    def biases(self, seen: Sequence[Seen | None], groups: int) -> tuple[Tensor | None, ...]:  # noqa: ARG002 - heads share them
        """Masks [queries, keys], which the heads of a group share."""
        zero, hidden = np.float32(0), np.float32(-np.inf)
        return tuple(
            None if part is None else self._placed(torch.from_numpy(np.where(part, zero, hidden)))
            for part in seen
        )

    def stacked(
        self, placement: Placement, biases: Sequence[Tensor | None], groups: int, queries: int
    ) -> Tensor | None:
        """The mask of a ring of one segment, which `ring_products` read whole in every forward.

        Also once all of it is seen.
        """
        if not isinstance(placement, RingPlacement) or len(placement.segments) > 1:
            return None
        mask = biases[0]
        if mask is None:
            mask = torch.zeros(queries, placement.slots, device=self._device.place)
        return mask.repeat(groups, 1)

    def query_counts(self, shape: AttentionLayer) -> tuple[int, ...]:
        """Those that agree in the calling thread; see `product_rows.query_counts`."""
        return query_counts(shape, self._dtype, self._device)

    def rows(self, queries: Floats, kv_heads: int) -> Tensor:
        """Queries [heads, n, head_dim] as rows [kv_heads, groups * n, head_dim]."""
        with torch.inference_mode():
            # In memory of torch's own, aligned as products elsewhere are.
            own = torch.empty(queries.shape)
            own.numpy()[:] = queries
            return self._placed(own.to(self._dtype)).view(kv_heads, -1, queries.shape[2])

    def packed(self, codec: KvCodec, numbers: Raw) -> Packed:
        """See `Kernels`."""
        return codec.encode(numbers, self.tiles_of)

    def tiles_of(self, codec: Codec, tiles: Raw) -> Packed:
        """Numbers [n, 64, head_dim] in `dtype` as tiles [n, bytes]."""
        return codec.encode(as_float32(tiles))

    def unpacked(self, codec: Codec, tiles: Packed, head_dim: int, *, are_keys: bool) -> Tensor:
        """Tiles [kv_heads, n, bytes] as a segment's keys or values."""
        heads = len(tiles)
        rows = tiles.reshape(-1, tiles.shape[2])
        with torch.inference_mode():
            own = self._placed(self.numbers_of(codec, rows, head_dim)).view(heads, -1, head_dim)
            return own.transpose(1, 2) if are_keys else own

    def numbers_of(self, codec: Codec, tiles: Packed, head_dim: int) -> Tensor:
        """The numbers [n, 64, head_dim] of tiles [n, bytes], on the host."""
        return torch.from_numpy(codec.decode(tiles, head_dim)).to(self._dtype)

    def packed_reads(self, codec: KvCodec, head_dim: int) -> PackedReads[Tensor] | None:  # noqa: ARG002 - of libraries
        """None: torch's own operators know no tiles."""
        return None

    def attend(
        self, rows: Tensor, feed: FeedSegments[Tensor], scaling: float
    ) -> list[Partial[Tensor]]:
        """Attention of `rows` to each chunk of the feed's segments."""
        with torch.inference_mode():
            return chunk_partials(rows, feed, scaling)

    def merged(self, first: Partial[Tensor], second: Partial[Tensor]) -> Partial[Tensor]:
        """Attention to the keys of both. Writes over the first."""
        with torch.inference_mode():
            return merged(first, second)

    def host(self, array: Tensor) -> Floats:
        """The numbers of a float32 tensor, not copied where they are the host's."""
        return on_host(array)

    def device(self, numbers: Floats, like: Tensor) -> Tensor:
        """Numbers as a tensor of the shape of `like`."""
        with torch.inference_mode():
            return torch.tensor(numbers, device=self._device.place).view(like.shape)

    def _placed(self, tensor: Tensor) -> Tensor:
        """`tensor`, made on the host, on the device."""
        return tensor.to(self._device.place)
