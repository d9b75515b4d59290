"""Evicted keys and values as torch tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from engine.backends.torch_backend.kernels import TorchKernels
from engine.features import FeatureEncoder
from engine.positions import CHUNK_KEYS
from engine.restoration.segment_store import Restoring, SegmentStore
from engine.restoration.shape import EvictedShape
from engine.restoration.specification import RestorerSpec
from engine.slab_pool import SlabPool


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
            TorchKernels(shape.dtype),
            pool,
            restoring=restoring,
            encoder=encoder,
            origin=origin,
            chunk_keys=chunk_keys,
        )
