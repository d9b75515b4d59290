"""Bits that depend on the history alone: dtypes, threads, shapes, concurrency, memory."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend.activation import PiecewiseActivation
from kakeya_fleet.engine.backends.torch_backend.kernels import TorchSegment
from kakeya_fleet.engine.backends.torch_backend.torch_verifier import TorchVerifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.positions import ring_placement
from kakeya_fleet.engine.kv.group_store import GroupStore
from kakeya_fleet.engine.kv.slab_cache import SlabCache
from kakeya_fleet.engine.memory.slab_pool import Slab
from kakeya_fleet.engine.models.model_folder import ModelFolder

RING = CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13)
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=600)
HISTORY = [(17 * index + index * index // 3) % 96 for index in range(320)]

MODELS: dict[str, dict[str, object]] = {
    "qwen3 float32": {},
    "qwen3 bfloat16": {"dtype": "bfloat16"},
    "llama bfloat16": {"architecture": "LlamaForCausalLM", "dtype": "bfloat16"},
    # The shipped model's shape, one layer of it.
    "head_dim 64": {
        "hidden_size": 256,
        "intermediate_size": 640,
        "head_dim": 64,
        "num_hidden_layers": 1,
    },
    "head_dim 64, bfloat16": {
        "dtype": "bfloat16",
        "hidden_size": 256,
        "intermediate_size": 640,
        "head_dim": 64,
        "num_hidden_layers": 1,
    },
    # Nothing divides anything, and each group has one head.
    "odd": {"intermediate_size": 27, "num_attention_heads": 3, "num_key_value_heads": 3},
}


@pytest.fixture(scope="module", params=sorted(MODELS))
def verifier(
    request: pytest.FixtureRequest, random_checkpoint: Callable[..., Path]
) -> TorchVerifier:
    options = dict(MODELS[request.param])
    dtype = str(options.pop("dtype", "float32"))
    path = random_checkpoint(str(options.pop("architecture", "Qwen3ForCausalLM")), **options)
    return load_verifier(ModelFolder(path, "random"), dtype=dtype)


@pytest.fixture(scope="module", params=["ring", "full"])
def straight(
    request: pytest.FixtureRequest, verifier: TorchVerifier
) -> tuple[SlabCache, np.ndarray]:
    """A cache and the logits of `HISTORY`, taken one token at a time."""
    cache = verifier.allocate(RING if request.param == "ring" else FULL)
    logits = [verifier.forward(cache, [token], want_logits=True) for token in HISTORY]
    return cache, np.concatenate(logits)


def visible(cache: SlabCache) -> list[int]:
    """Positions that the last query attended to."""
    last = cache.length - 1
    if cache.spec.kind is CacheKind.CONTIGUOUS:
        return list(range(cache.length))
    window = range(max(0, last - cache.spec.window + 1), cache.length)
    return sorted({*range(cache.spec.sink), *window})


def assert_same_kv(first: SlabCache, second: SlabCache, layers: int) -> None:
    assert first.length == second.length
    for layer, position in itertools.product(range(layers), visible(first)):
        one, other = first.held(layer, position), second.held(layer, position)
        assert np.array_equal(one, other), (layer, position)


# Five cuts and more: an example of few would spend its forwards on one or two shapes.
@settings(deadline=None, max_examples=5)
@given(cuts=st.lists(st.tuples(st.integers(1, 16), st.integers(0, 15)), min_size=5, max_size=20))
def test_logits_and_kv_are_the_same_however_the_history_is_cut(
    verifier: TorchVerifier,
    straight: tuple[SlabCache, np.ndarray],
    cuts: list[tuple[int, int]],
) -> None:
    """`cuts`: right and then rejected tokens of each forward, over and over."""
    expected_cache, expected = straight
    cache = verifier.allocate(expected_cache.spec)
    for right, wrong in itertools.cycle(cuts):
        start = cache.length
        chunk = HISTORY[start : start + right]
        if not chunk:
            break
        rejected = [95 - token for token in HISTORY[start : start + wrong]][: 16 - len(chunk)]
        got = verifier.forward(cache, chunk + rejected, want_logits=True)
        kept = start + len(chunk)
        cache.truncate(kept)
        assert got[: len(chunk)].tobytes() == expected[start:kept].tobytes(), start
    assert_same_kv(expected_cache, cache, 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_ring_of_several_segments_is_exact_until_it_wraps_and_after(
    random_checkpoint: Callable[..., Path], dtype: str
) -> None:
    verifier = load_verifier(ModelFolder(random_checkpoint(), "random"), dtype=dtype)
    wide = CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=250)
    straight = verifier.allocate(wide)
    placement = ring_placement(4, 250, 1024)
    # From within the first segment into the second, and then over what is in both.
    before, end = 176, 620
    assert (placement.used(before), placement.used(before + 32)) == (1, 2)
    assert before < placement.segments[0]
    assert placement.slots + placement.segments[0] < end
    rng = random.Random(0)
    history = [rng.randrange(96) for _ in range(end)]
    for first in range(0, before, 16):
        verifier.forward(straight, history[first : first + 16], want_logits=False)
    beginning = straight.fork(before)
    expected = [verifier.forward(straight, [token], want_logits=True) for token in history[before:]]
    for seed in range(3):
        rng = random.Random(seed)
        cut = beginning.fork(before)
        while cut.length < end:
            start = cut.length
            right = history[start : start + rng.randint(1, 16)]
            wrong = [rng.randrange(96) for _ in range(rng.randint(0, 16 - len(right)))]
            wrong = wrong[: end - start - len(right)]
            got = verifier.forward(cut, right + wrong, want_logits=True)
            kept = start + len(right)
            cut.truncate(kept)
            rows = np.concatenate(expected[start - before : kept - before])
            assert got[: len(right)].tobytes() == rows.tobytes(), f"seed {seed}, position {start}"
        assert_same_kv(straight, cut, 1)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("count", [2, 3])
def test_threads_whose_shares_end_within_a_row_change_no_bits(
    random_checkpoint: Callable[..., Path], threads: Callable[[int], None], count: int, dtype: str
) -> None:
    # 16 rows of 5,632 activations: three threads' shares end inside rows, and so
    # would their scalar remainders.
    path = random_checkpoint(intermediate_size=5632, num_hidden_layers=1)
    verifier = load_verifier(ModelFolder(path, "wide"), dtype=dtype)
    threads(count)
    for spec in (RING, FULL):
        single, block = verifier.allocate(spec), verifier.allocate(spec)
        for start in range(0, 48, 16):
            got = verifier.forward(block, HISTORY[start : start + 16], want_logits=True)
            for row, token in zip(got, HISTORY[start : start + 16], strict=True):
                expected = verifier.forward(single, [token], want_logits=True)
                assert row.tobytes() == expected[0].tobytes()


@pytest.mark.parametrize("size", [1, 63, 64, 32_704, 32_705, 90_112])
def test_piecewise_is_the_function_itself(size: int) -> None:
    values = torch.linspace(-9, 9, size).view(1, size)
    exact = values.double() * torch.sigmoid(values.double())
    got = PiecewiseActivation(torch.nn.SiLU())(values)
    assert got.shape == values.shape
    assert torch.allclose(got.double(), exact, rtol=1e-6, atol=1e-7)


def test_layers_keep_their_own_keys_and_values(random_checkpoint: Callable[..., Path]) -> None:
    verifier = load_verifier(ModelFolder(random_checkpoint(num_hidden_layers=3), "random"))
    cache = verifier.allocate(FULL)
    verifier.forward(cache, HISTORY[:16], want_logits=False)
    held = [cache.held(layer, 7) for layer in range(3)]
    for first, second in itertools.combinations(held, 2):
        assert not np.array_equal(first[0], second[0])
        assert not np.array_equal(first[1], second[1])
    ones = torch.ones(2, 1, 16)
    cache.write(1, cache.prepare(1), ones, ones)
    for layer in (0, 2):
        assert np.array_equal(cache.held(layer, 7), held[layer])
        assert not cache.held(layer, 16)[0].any()
    assert np.array_equal(cache.held(1, 16)[0], ones[:, 0].numpy())
    assert np.array_equal(cache.held(1, 6)[0], cache.fork(cache.length).held(1, 6)[0])


def test_padding_rows_write_nothing_and_are_finite(
    random_checkpoint: Callable[..., Path],
) -> None:
    verifier = load_verifier(ModelFolder(random_checkpoint(), "random"))
    cache = verifier.allocate(CacheSpec(CacheKind.SINK_WINDOW, sink=0, window=1))
    verifier.forward(cache, [5], want_logits=False)
    assert all(side.any() for side in cache.held(0, 0))
    for position in range(1, 16):
        assert not cache.held(0, position).any()


@pytest.mark.slow
def test_a_ring_has_the_same_bytes_after_1_000_and_20_000_tokens(
    random_checkpoint: Callable[..., Path],
) -> None:
    path = random_checkpoint(num_hidden_layers=1, max_position_embeddings=32_768)
    verifier = load_verifier(ModelFolder(path, "long"))
    cache = verifier.allocate(RING)
    seen: dict[int, int] = {}
    for end in (1_000, 20_000):
        while cache.length < end:
            block = HISTORY[: min(16, end - cache.length)]
            verifier.forward(cache, block, want_logits=False)
        seen[cache.length] = sum(
            tensor.untyped_storage().nbytes() for tensor in tensors_of(cache).values()
        )
    assert seen[1_000] == seen[20_000] == cache.memory_bytes == verifier.bytes_needed(RING)
    slots = cache.memory_bytes // verifier.info.kv_bytes_per_token
    assert 3 + 13 + 15 <= slots == 64


def tensors_of(root: object) -> dict[int, torch.Tensor]:
    """Every float tensor that hangs on `root` by attributes or tuples, one per storage."""
    found: dict[int, torch.Tensor] = {}
    waiting = [root]
    while waiting:
        item = waiting.pop()
        if isinstance(item, torch.Tensor):
            if item.is_floating_point():
                found[item.untyped_storage().data_ptr()] = item
        elif isinstance(item, tuple | list):
            waiting.extend(item)
        elif isinstance(item, Slab):
            waiting.append(item.payload)
        elif isinstance(item, SlabCache | GroupStore | TorchSegment):
            waiting.extend(vars(item).values())
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bytes_are_those_of_the_tensors(random_checkpoint: Callable[..., Path], dtype: str) -> None:
    verifier = load_verifier(ModelFolder(random_checkpoint(), "random"), dtype=dtype)
    for spec in (RING, FULL):
        tensors = tensors_of(verifier.allocate(spec)).values()
        held = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        assert held == verifier.bytes_needed(spec) == verifier.allocate(spec).memory_bytes
