"""A forward's working memory does not grow with the context."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder

CONTEXT = 40_000


class Made(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Notes the largest tensor of a forward."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.largest = 0

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = operator(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor) and not tensor._is_view():
                self.largest = max(self.largest, tensor.nbytes)
        return made


@pytest.fixture(scope="module")
def verifier(random_checkpoint: Callable[..., Path]) -> Verifier:
    path = random_checkpoint(num_hidden_layers=1, max_position_embeddings=CONTEXT)
    return load_verifier(ModelFolder(path, "long"))


def largest(verifier: Verifier, spec: CacheSpec, context: int, count: int) -> int:
    cache = verifier.allocate(spec)
    cache.fill(context, seed=0)
    with Made() as made:
        verifier.forward(cache, [1] * count, want_logits=False)
    cache.release()
    largest_bytes: int = made.largest
    return largest_bytes


@pytest.mark.parametrize("count", [1, 64])
def test_the_scores_in_memory_are_those_of_one_chunk(verifier: Verifier, count: int) -> None:
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=CONTEXT)
    at_one_chunk = largest(verifier, spec, 2 * CHUNK_KEYS, count)
    assert largest(verifier, spec, 4 * CHUNK_KEYS, count) == at_one_chunk
    heads, rows = 4, max(2, count)
    assert at_one_chunk <= CHUNK_KEYS * heads * rows * 4


def test_a_wide_window_too_is_read_in_chunks(verifier: Verifier) -> None:
    spec = CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=30_000)
    assert largest(verifier, spec, 39_000, 16) <= CHUNK_KEYS * 4 * 16 * 4
