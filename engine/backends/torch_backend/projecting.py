"""Evicted stores whose keys and values a learned map makes of context vectors.

A deposit brings one vector of `width` values a position, the context vector or what the map's
first part made of it, and the store keeps what the map
makes of it: as many bytes as if keys and values themselves had come. Keeping the vectors
would cost a product for every evicted position in every step that attends to it, of
`2 width kv_heads head_dim` multiplications a layer, where attending takes
`2 heads head_dim` a query: `width kv_heads / (heads queries)` times as many, 128 times
for a single token of the shipped pair, 8 times for a block of 16.
"""

from __future__ import annotations

from typing import Any

import torch

from kakeya_fleet.engine.backends.torch_backend.dtypes import raw, torch_dtype
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.backends.torch_backend.projection import Projection
from kakeya_fleet.engine.backends.torch_backend.threads import one_thread
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import Evicted, EvictedKeysValues, Raw
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec
from kakeya_fleet.engine.errors import RestorerRefused, TrainedForAnother
from kakeya_fleet.engine.memory.slab_pool import SlabPool
from kakeya_fleet.engine.restoration.segment_store import Restoring

ROWS = 16
"""Rows of each call of the map; position p is always in row p % ROWS.

So a position's bits depend neither on how the deposits are cut nor on the kernels
that another number of rows would take.
"""


def projecting_store(
    shape: EvictedShape,
    spec: RestorerSpec,
    pool: SlabPool[Any],
    projection: Projection,
    encoder: FeatureEncoder | None = None,
    *,
    origin: int = 0,
) -> TorchEvictedStore:
    """An empty store that keeps what `projection` makes of what is deposited.

    Of the positions from `origin` on. `encoder` is handed on to the cache; a store elsewhere
    has none. Raises `TrainedForAnother` for a map of other layers, vectors or another encoder.
    """
    _check(shape, projection, encoder)
    return TorchEvictedStore(
        shape,
        spec,
        pool,
        restoring=_restoring(shape, projection),
        encoder=encoder,
        origin=origin,
    )


def _check(shape: EvictedShape, projection: Projection, encoder: FeatureEncoder | None) -> None:
    config = projection.config
    asked = [(layer.kv_heads, layer.head_dim) for layer in config.layers]
    kept = [
        (shape.group_of[index].shape.kv_heads, shape.group_of[index].shape.head_dim)
        for index in sorted(shape.group_of)
    ]
    if asked != kept or config.deposited != shape.width:
        raise TrainedForAnother(
            f"the projection makes layers {asked} of {config.deposited} values, the verifier"
            f" evicts layers {kept} and vectors of {shape.width}",
            trained_for=config.verifier_model_id,
        )
    if encoder is not None and config.encoder_digest != encoder.spec.digest:
        raise TrainedForAnother(
            f"the projection takes vectors of the encoder {config.encoder_digest},"
            f" not of {encoder.spec.digest}",
            trained_for=config.encoder_digest,
            used_with=encoder.spec.digest,
        )


def _check_threads(shape: EvictedShape, projection: Projection) -> None:
    """Raises `RestorerRefused` where the calling thread's products round otherwise than one's.

    Stores in other numbers of threads would make other keys of the same vectors.
    """
    vectors = torch.randn(ROWS, shape.width, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(ROWS)
    with one_thread():
        alone = projection.restored(vectors, positions)
    here = projection.restored(vectors, positions)
    pairs = zip(alone, here, strict=True)
    if not all(torch.equal(*parts) for each in pairs for parts in zip(*each, strict=True)):
        threads = str(torch.get_num_threads())
        raise RestorerRefused(
            f"{threads} threads round the products of a learned map as one alone does not:"
            " start the node with OMP_NUM_THREADS=1",
            threads=threads,
        )


def _restoring(shape: EvictedShape, projection: Projection) -> Restoring:
    """What makes keys and values of vectors, for the groups of `shape`."""
    dtype = torch_dtype(shape.dtype)
    order = {layer: place for place, layer in enumerate(sorted(shape.group_of))}

    exact_with: set[int] = set()
    """Numbers of threads that were found to round as one alone."""

    @torch.inference_mode()
    def restored(first: int, evicted: Evicted) -> list[Raw]:
        if torch.get_num_threads() not in exact_with:
            _check_threads(shape, projection)
            exact_with.add(torch.get_num_threads())
        if isinstance(evicted, EvictedKeysValues):
            raise RestorerRefused("keys and values were deposited where context vectors are kept")
        count = len(evicted)
        found = [
            torch.empty(
                len(group.layers), 2, group.shape.kv_heads, count, group.shape.head_dim, dtype=dtype
            )
            for group in shape.groups
        ]
        for start in range(first - first % ROWS, first + count, ROWS):
            low, high = max(start, first), min(start + ROWS, first + count)
            vectors = torch.zeros(ROWS, shape.width)
            own = slice(low - start, high - start)
            vectors.numpy()[own] = evicted[low - first : high - first]
            made = projection.restored(vectors, torch.arange(start, start + ROWS))
            for group, numbers in zip(shape.groups, found, strict=True):
                for place, layer in enumerate(group.layers):
                    for kind, part in enumerate(made[order[layer]]):
                        numbers[place, kind, :, low - first : high - first] = part[:, own]
        if not all(bool(numbers.isfinite().all()) for numbers in found):
            raise RestorerRefused("the map makes numbers that are not finite of these vectors")
        return [raw(numbers) for numbers in found]

    return restored
