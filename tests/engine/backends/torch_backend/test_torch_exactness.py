"""Bits that depend on the history alone: dtypes, threads, shapes, concurrency, memory."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from kakeya_fleet.engine.backends.slab_verifier import SlabVerifier
from kakeya_fleet.engine.backends.torch_backend.activation import (
    PIECE_ELEMENTS,
    VECTOR_ELEMENTS,
    piecewise,
)
from kakeya_fleet.engine.backends.torch_backend.forward_step import TensorCache
from kakeya_fleet.engine.backends.torch_backend.kernels import TorchSegment
from kakeya_fleet.engine.backends.torch_backend.recurrent import RecurrentState
from kakeya_fleet.engine.backends.torch_backend.torch_verifier import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.positions import ring_placement
from kakeya_fleet.engine.kv.group_store import GroupStore
from kakeya_fleet.engine.kv.layer_stores import LayerStores
from kakeya_fleet.engine.kv.slab_cache import SlabCache
from kakeya_fleet.engine.kv.states import HeldStates
from kakeya_fleet.engine.memory.slab_pool import Slab
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support.breadth import all_wide_but, wide
from tests.support.forwards import logits_of

AnyVerifier = SlabVerifier[torch.Tensor, RecurrentState]
RING = CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13)
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=600)
HISTORY = [(17 * index + index * index // 3) % 96 for index in range(150)]
"""Twice round the ring, and into the third segment of 64 slots."""

# The shipped model's shape, one layer of it.
SHIPPED: dict[str, object] = {
    "hidden_size": 256,
    "intermediate_size": 640,
    "head_dim": 64,
    "num_hidden_layers": 1,
}
# Nothing divides anything, and each group has one head.
ODD: dict[str, object] = {
    "num_hidden_layers": 1,
    "intermediate_size": 27,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
}
# The suite of verifiers has the plain shape in float32, that of families all architectures.
CASES: dict[str, tuple[dict[str, object], str, CacheSpec]] = {
    "plain bfloat16 ring": ({}, "bfloat16", RING),
    "shipped float32 ring": (SHIPPED, "float32", RING),
    "shipped bfloat16 full": (SHIPPED, "bfloat16", FULL),
    "odd float32 full": (ODD, "float32", FULL),
}


def visible(cache: TensorCache) -> list[int]:
    """Positions that the last query attended to."""
    last = cache.length - 1
    if cache.spec.kind is CacheKind.CONTIGUOUS:
        return list(range(cache.length))
    window = range(max(0, last - cache.spec.window + 1), cache.length)
    return sorted({*range(cache.spec.sink), *window})


def assert_same_kv(first: TensorCache, second: TensorCache, layers: int) -> None:
    assert first.length == second.length
    for layer, position in itertools.product(range(layers), visible(first)):
        one, other = first.held(layer, position), second.held(layer, position)
        assert np.array_equal(one, other), (layer, position)


def assert_cut_is_straight(
    verifier: AnyVerifier,
    straight: TensorCache,
    cut: TensorCache,
    expected: np.ndarray,
    history: list[int],
    seed: int,
) -> None:
    """`cut` reads on in blocks with rejected tokens: the bits of `straight`'s single steps.

    `expected`: the logits of the last tokens of `history`, of which `cut` has those before.
    """
    rng = random.Random(seed)
    first = len(history) - len(expected)
    assert cut.length == first
    while cut.length < len(history):
        start = cut.length
        right = history[start : start + rng.randint(1, 16)]
        wrong = [rng.randrange(96) for _ in range(rng.randint(0, 16 - len(right)))]
        wrong = wrong[: cut.spec.capacity - start - len(right)] if cut.spec.capacity else wrong
        got = logits_of(verifier, cut, right + wrong)
        kept = start + len(right)
        cut.truncate(kept)
        rows = expected[start - first : kept - first]
        assert got[: len(right)].tobytes() == rows.tobytes(), f"seed {seed}, position {start}"
    assert_same_kv(straight, cut, 1)


def steps(verifier: AnyVerifier, cache: TensorCache, tokens: list[int]) -> np.ndarray:
    """The logits of `tokens`, taken one at a time."""
    return np.concatenate([logits_of(verifier, cache, [token]) for token in tokens])


@pytest.mark.parametrize(
    "name",
    all_wide_but(["shipped bfloat16 full", "odd float32 full", "shipped float32 ring"], CASES),
)
def test_logits_and_kv_are_the_same_however_the_history_is_cut(
    random_checkpoint: Callable[..., Path], name: str
) -> None:
    config, dtype, spec = CASES[name]
    verifier = load_verifier(ModelFolder(random_checkpoint(**config), "random"), dtype=dtype)
    straight = verifier.allocate(spec)
    expected = steps(verifier, straight, HISTORY)
    for seed in range(3):
        cut = verifier.allocate(spec)
        assert_cut_is_straight(verifier, straight, cut, expected, HISTORY, seed)


@pytest.mark.parametrize("dtype", ["float32", wide("bfloat16")])
def test_a_ring_of_several_segments_is_exact_until_it_wraps_and_after(
    random_checkpoint: Callable[..., Path], dtype: str
) -> None:
    path = random_checkpoint(num_hidden_layers=1)
    verifier = load_verifier(ModelFolder(path, "random"), dtype=dtype)
    wide = CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=250)
    placement = ring_placement(4, 250, 1024)
    rng = random.Random(0)
    # From within the first segment into the second, and then over what is in both.
    border = placement.segments[0]
    assert (placement.used(border), placement.used(border + 1)) == (1, 2)
    for before, end in (
        (border - 20, border + 20),
        (placement.slots - 20, placement.slots + border + 20),
    ):
        straight = verifier.allocate(wide)
        history = [rng.randrange(96) for _ in range(end)]
        for first in range(0, before, 16):
            block = history[first : min(before, first + 16)]
            verifier.forward(straight, block, want_logits=False)
        cuts = [straight.fork(before) for _ in range(2)]
        expected = steps(verifier, straight, history[before:])
        for seed, cut in enumerate(cuts):
            assert_cut_is_straight(verifier, straight, cut, expected, history, seed)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_threads_whose_shares_end_within_a_row_change_no_bits(
    random_checkpoint: Callable[..., Path], threads: Callable[[int], None], dtype: str
) -> None:
    # 16 rows of 2,060 activations are more than torch gives to one thread; three threads'
    # shares end inside rows, and so would their scalar remainders.
    path = random_checkpoint(intermediate_size=2060, num_hidden_layers=1)
    verifier = load_verifier(ModelFolder(path, "wide"), dtype=dtype)
    threads(3)
    block = logits_of(verifier, verifier.allocate(RING), HISTORY[:16])
    assert block.tobytes() == steps(verifier, verifier.allocate(RING), HISTORY[:16]).tobytes()


@pytest.mark.parametrize("size", [1, 63, 64, 32_704, 32_705, 90_112])
def test_piecewise_is_the_function_itself(size: int) -> None:
    values = torch.linspace(-9, 9, size).view(1, size)
    exact = values.double() * torch.sigmoid(values.double())
    sizes: list[int] = []

    def noted(piece: torch.Tensor) -> torch.Tensor:
        sizes.append(piece.numel())
        return torch.nn.functional.silu(piece)

    got = piecewise(noted, values)
    assert got.shape == values.shape
    assert torch.allclose(got.double(), exact, rtol=1e-6, atol=1e-7)
    # Too small to be divided among threads, and without an end that takes another formula.
    assert all(each <= PIECE_ELEMENTS and each % VECTOR_ELEMENTS == 0 for each in sizes)


def test_padding_rows_write_nothing_and_are_finite(
    random_checkpoint: Callable[..., Path],
) -> None:
    verifier = load_verifier(ModelFolder(random_checkpoint(), "random"))
    cache = verifier.allocate(CacheSpec(CacheKind.SINK_WINDOW, sink=0, window=1))
    verifier.forward(cache, [5], want_logits=False)
    assert all(side.any() for side in cache.held(0, 0))
    for position in range(1, 16):
        assert not cache.held(0, position).any()


def test_a_ring_keeps_its_bytes_however_long_the_history(
    random_checkpoint: Callable[..., Path],
) -> None:
    path = random_checkpoint(num_hidden_layers=1, max_position_embeddings=32_768)
    verifier = load_verifier(ModelFolder(path, "long"))
    for before in (0, 19_984):
        cache = verifier.allocate(RING)
        cache.fill(before, seed=1)
        while cache.length < before + 1_000:
            verifier.forward(cache, HISTORY[:16], want_logits=False)
            held = sum(tensor.untyped_storage().nbytes() for tensor in tensors_of(cache).values())
            assert held == cache.memory_bytes == verifier.bytes_needed(RING), cache.length
    slots = cache.memory_bytes // verifier.info.kv_bytes_per_token
    assert 3 + 13 + 15 <= slots == 64


def tensors_of(root: object) -> dict[int, torch.Tensor]:
    """Every float tensor that hangs on `root` by attributes or containers, one per storage."""
    found: dict[int, torch.Tensor] = {}
    waiting = [root]
    while waiting:
        item = waiting.pop()
        if isinstance(item, torch.Tensor):
            if item.is_floating_point():
                found[item.untyped_storage().data_ptr()] = item
        elif isinstance(item, tuple | list):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, Slab):
            waiting.append(item.payload)
        elif isinstance(item, SlabCache | LayerStores | HeldStates | GroupStore | TorchSegment):
            waiting.extend(vars(item).values())
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bytes_are_those_of_the_tensors(random_checkpoint: Callable[..., Path], dtype: str) -> None:
    verifier = load_verifier(ModelFolder(random_checkpoint(), "random"), dtype=dtype)
    for spec in (RING, FULL):
        tensors = tensors_of(verifier.allocate(spec)).values()
        held = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        assert held == verifier.bytes_needed(spec) == verifier.allocate(spec).memory_bytes
