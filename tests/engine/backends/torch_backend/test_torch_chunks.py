"""Torch: histories of more than one chunk of keys, whose parts are merged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend.attention import segment_attention
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.kv.chunks import Run, chunks, cut
from kakeya_fleet.engine.kv.feed import FeedSegments, Masks
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support.breadth import wide
from tests.support.forwards import logits_of

HISTORY = [(17 * index + index * index // 3) % 96 for index in range(20)]


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        (CacheSpec(CacheKind.CONTIGUOUS, capacity=9000), "float32"),
        # Its 9 segments are of 1,024 slots.
        wide(CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=9000), "bfloat16"),
    ],
    ids=["contiguous", "ring"],
)
def test_a_history_that_begins_another_chunk_is_exact(
    random_checkpoint: Callable[..., Path], spec: CacheSpec, dtype: str
) -> None:
    path = random_checkpoint(num_hidden_layers=1, max_position_embeddings=1 << 14)
    verifier = load_verifier(ModelFolder(path, "long"), dtype=dtype)
    cache = verifier.allocate(spec)
    cache.fill(CHUNK_KEYS - 10, seed=1)
    rows = []
    # How many rows a forward may have is found on the machine.
    for block in (1, 5, min(20, verifier.row_counts[-1])):
        fork = cache.fork(cache.length)
        parts = [HISTORY[first : first + block] for first in range(0, len(HISTORY), block)]
        rows.append(np.concatenate([logits_of(verifier, fork, p) for p in parts]))
        fork.release()
    assert rows[0].tobytes() == rows[1].tobytes() == rows[2].tobytes()


def test_chunks_are_merged_into_one_softmax() -> None:
    generator = torch.Generator().manual_seed(3)
    sizes = [256, 256, 512, 1024]
    query = torch.randn(1, 4, 3, 16, generator=generator)
    keys, values = torch.randn(2, 2, sum(sizes), 16, generator=generator)
    # Query 0 sees nothing of the first chunk, query 1 nothing of the last.
    bias = torch.zeros(3, sum(sizes))
    bias[0, :1024] = bias[1, 1024:] = -torch.inf
    scores = torch.einsum("ghqd,gkd->ghqk", query.view(2, 2, 3, 16), keys) * 0.25 + bias
    expected = torch.einsum("ghqk,gkd->ghqd", scores.double().softmax(-1), values.double())
    masks = Masks(
        first_row=0,
        count=3,
        queries=3,
        chunks=((Run(0, 2, 256), Run(2, 3, 512)), (Run(3, 4, 1024),)),
        biases=torch.split(bias, sizes, dim=1),
    )
    segments = FeedSegments(
        masks,
        [part.transpose(1, 2) for part in keys.split(sizes, dim=1)],
        list(values.split(sizes, dim=1)),
    )
    got, _ = segment_attention(nn.Identity(), query, [segments], [segments], None, scaling=0.25)
    assert torch.allclose(got[0].transpose(0, 1), expected.view(4, 3, 16).float(), atol=1e-5)


def test_borders_of_chunks_depend_on_the_slots_alone() -> None:
    segments = (256,) * 8 + (1024,) * 15
    whole = chunks(segments)
    assert whole == (
        (Run(0, 8, 256), Run(8, 14, 1024)),
        (Run(14, 22, 1024),),
        (Run(22, 23, 1024),),
    )
    for used in range(1, len(segments) + 1):
        assert cut(whole, used) == chunks(segments[:used])
