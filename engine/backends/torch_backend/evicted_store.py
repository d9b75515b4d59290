"""Evicted keys and values as torch tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.compiled.packing import PackingKernels
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec
from kakeya_fleet.engine.kv.kernels import Kernels
from kakeya_fleet.engine.kv.packed_segments import PackedKernels
from kakeya_fleet.engine.memory.slab_pool import SlabPool
from kakeya_fleet.engine.restoration.segment_store import Restoring, SegmentStore


def kernels_of(shape: EvictedShape) -> Kernels[Any]:
    """Torch's, over packed segments where the shape has a codec."""
    kernels = PackingKernels(shape.dtype)
    return kernels if shape.kv_codec is None else PackedKernels(kernels, shape.kv_codec)


class TorchEvictedStore(SegmentStore[Tensor]):
    """A `SegmentStore` that attends with torch."""

    def __init__(
        self,
        shape: EvictedShape,
        spec: RestorerSpec,
        pool: SlabPool[Any],
        *,
        restoring: Restoring | None = None,
        encoder: FeatureEncoder | None = None,
        origin: int = 0,
        chunk_keys: int = CHUNK_KEYS,
    ) -> None:
        """See `SegmentStore`."""
        super().__init__(
            shape,
            spec,
            kernels_of(shape),
            pool,
            restoring=restoring,
            encoder=encoder,
            origin=origin,
            chunk_keys=chunk_keys,
        )
