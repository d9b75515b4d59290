"""Every family: the history alone decides the bits, past every window, in float32 and bfloat16."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend.activation import PIECE_ELEMENTS, VECTOR_ELEMENTS
from kakeya_fleet.engine.backends.torch_backend.architectures import read_architecture
from kakeya_fleet.engine.backends.torch_backend.layer_plan import kv_layout
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, RecurrentLayer, SharedLayer
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder

FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "Llama": ("LlamaForCausalLM", {}),
    "Mistral": ("MistralForCausalLM", {"sliding_window": 24}),
    "Qwen2": ("Qwen2ForCausalLM", {}),
    "Qwen3": ("Qwen3ForCausalLM", {}),
    "Gemma 3": ("Gemma3ForCausalLM", {}),
    "Gemma 4": ("Gemma4ForCausalLM", {}),
    "Qwen3.5": ("Qwen3_5ForCausalLM", {}),
}
SPECS = {
    "full": CacheSpec(CacheKind.CONTIGUOUS, capacity=400),
    # The window is shorter than the sliding layers' own 24.
    "narrow": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13),
    # It is longer: a sliding layer sees the sink for as long as it is within 24.
    "wide": CacheSpec(CacheKind.SINK_WINDOW, sink=5, window=40),
}
HISTORY = [(17 * index + index * index // 3) % 96 for index in range(20 * (3 + 13))]
LONG = 92
"""Tokens past sink, window and sliding window, for what takes single steps."""


BOTH = ("float32", "bfloat16")
# Pairwise: each kind of layer (plain, sliding, of shared keys, recurrent) meets each cache
# and each dtype, and each cache both dtypes. Without sliding layers "wide" is a "narrow".
CASES = [
    ("Llama", "narrow", "float32"),
    ("Qwen2", "full", "float32"),
    ("Qwen3", "full", "bfloat16"),
    ("Mistral", "wide", "float32"),
    ("Gemma 3", "narrow", "bfloat16"),
    ("Gemma 4", "narrow", "float32"),
    ("Gemma 4", "full", "float32"),
    ("Gemma 4", "wide", "bfloat16"),
    ("Qwen3.5", "narrow", "bfloat16"),
    ("Qwen3.5", "full", "float32"),
]


@pytest.fixture(scope="module", params=CASES, ids=" ".join)
def case(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    family, spec, dtype = request.param
    return family, spec, dtype


@pytest.fixture(scope="module")
def verifier(case: tuple[str, str, str], random_checkpoint: Callable[..., Path]) -> Verifier:
    architecture, config = FAMILIES[case[0]]
    path = random_checkpoint(architecture, **config)
    return load_verifier(ModelFolder(path, "random"), dtype=case[2])


@pytest.fixture(scope="module")
def spec(case: tuple[str, str, str]) -> CacheSpec:
    return SPECS[case[1]]


@pytest.fixture(scope="module")
def single_steps(verifier: Verifier, spec: CacheSpec) -> np.ndarray:
    """The logits of the first `LONG` tokens, taken one at a time."""
    return run(verifier, verifier.allocate(spec), HISTORY[:LONG], [1])


def run(
    verifier: Verifier, cache: KvCache, tokens: Sequence[int], sizes: Sequence[int]
) -> np.ndarray:
    """The logits of `tokens` in blocks of `sizes`, over and over."""
    rows: list[np.ndarray] = []
    done = 0
    while done < len(tokens):
        chunk = tokens[done : done + sizes[len(rows) % len(sizes)]]
        logits = verifier.forward(cache, chunk, want_logits=True)
        assert logits is not None
        rows.append(logits)
        done += len(chunk)
    return np.concatenate(rows)


@pytest.mark.parametrize("sizes", [(16,), (2, 16, 3, 5, 9)], ids=str)
def test_blocks_are_single_steps(
    verifier: Verifier, spec: CacheSpec, single_steps: np.ndarray, sizes: tuple[int, ...]
) -> None:
    got = run(verifier, verifier.allocate(spec), HISTORY[:LONG], sizes)
    assert got.tobytes() == single_steps.tobytes()


def test_rejected_tokens_leave_nothing_behind(
    verifier: Verifier, spec: CacheSpec, single_steps: np.ndarray
) -> None:
    rng = random.Random(0)
    cache = verifier.allocate(spec)
    while cache.length < LONG:
        start = cache.length
        right = HISTORY[start : min(LONG, start + rng.randint(1, 16))]
        wrong = [rng.randrange(96) for _ in range(rng.randint(0, 16 - len(right)))]
        got = verifier.forward(cache, right + wrong, want_logits=True)
        kept = start + len(right)
        cache.truncate(kept)
        assert got is not None
        expected = single_steps[start:kept]
        assert got[: len(right)].tobytes() == expected.tobytes(), start


def test_chunked_history_is_one_shot(verifier: Verifier, spec: CacheSpec) -> None:
    whole = verifier.allocate(spec)
    widest = min(whole.widest, verifier.row_counts[-1])
    expected = run(verifier, whole, HISTORY, [widest])
    got = run(verifier, verifier.allocate(spec), HISTORY, [7, 1, 16, 3, 11])
    assert got.tobytes() == expected.tobytes()


def test_a_block_is_rolled_back_at_every_position(
    verifier: Verifier, spec: CacheSpec, single_steps: np.ndarray
) -> None:
    start = 68
    cache = verifier.allocate(spec)
    run(verifier, cache, HISTORY[:start], [16])
    for kept in range(17):
        fork = cache.fork(start)
        wrong = [(token + 1) % 96 for token in HISTORY[start + kept : start + 16]]
        block = HISTORY[start : start + kept] + wrong
        verifier.forward(fork, block, want_logits=False)
        # In two cuts: what a first one keeps, a second one can still cut off.
        fork.truncate(start + (kept + 16) // 2)
        fork.truncate(start + kept)
        end = start + kept + 5
        got = verifier.forward(fork, HISTORY[start + kept : end], want_logits=True)
        assert got is not None
        assert got.tobytes() == single_steps[start + kept : end].tobytes(), kept
        fork.release()


def test_a_fork_and_its_source_go_their_own_ways(
    verifier: Verifier, spec: CacheSpec, single_steps: np.ndarray
) -> None:
    cache = verifier.allocate(spec)
    run(verifier, cache, HISTORY[:60], [16])
    fork = cache.fork(60)
    # Other tokens in one of the two, far enough to write over all that they shared.
    run(verifier, cache, [(token + 7) % 96 for token in HISTORY[:60]], [16])
    got = run(verifier, fork, HISTORY[60:LONG], [16])
    assert got.tobytes() == single_steps[60:LONG].tobytes()


def test_sessions_that_share_a_forward_are_as_alone(
    verifier: Verifier, spec: CacheSpec, single_steps: np.ndarray
) -> None:
    starts = [0, 33, 82, 64]
    counts = [5, 1, 7, 2]
    caches = []
    for start in starts:
        caches.append(verifier.allocate(spec))
        if start:
            run(verifier, caches[-1], HISTORY[:start], [16])
    feeds = [
        Feed(cache, HISTORY[start : start + count], want_logits=True)
        for cache, start, count in zip(caches, starts, counts, strict=True)
    ]
    outputs = verifier.forward_batch(feeds)
    for start, count, output in zip(starts, counts, outputs, strict=True):
        assert output.logits is not None
        assert output.logits.tobytes() == single_steps[start : start + count].tobytes(), start
    # And they go on as alone: none wrote into another's keys or state.
    for start, count, cache in zip(starts, counts, caches, strict=True):
        end = start + count
        got = verifier.forward(cache, HISTORY[end : end + 3], want_logits=True)
        assert got is not None
        assert got.tobytes() == single_steps[end : end + 3].tobytes(), start


class SeenSizes(TorchFunctionMode):
    """Notes how many elements each call of a function gets that has two formulas."""

    FUNCTIONS = (
        torch.sigmoid,
        torch.tanh,
        torch.Tensor.sigmoid,
        torch.Tensor.tanh,
        functional.silu,
        functional.gelu,
        functional.softplus,
    )

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in self.FUNCTIONS:
            self.sizes.append(args[0].numel())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("architecture", [name for name, _ in FAMILIES.values()])
def test_no_element_meets_the_formula_of_a_tensors_end(
    random_checkpoint: Callable[..., Path], architecture: str
) -> None:
    # Two rows of these sizes are divided by no vector.
    sizes: dict[str, object] = {"num_attention_heads": 1, "num_key_value_heads": 1}
    if architecture == "Gemma4ForCausalLM":
        sizes |= {"num_global_key_value_heads": 1, "hidden_size_per_layer_input": 7}
    if architecture == "Qwen3_5ForCausalLM":
        sizes |= {"linear_num_key_heads": 1, "linear_num_value_heads": 1}
    path = random_checkpoint(architecture, intermediate_size=27, **sizes)
    verifier = load_verifier(ModelFolder(path, "random"))
    cache = verifier.allocate(SPECS["full"])
    with SeenSizes() as seen:
        verifier.forward(cache, HISTORY[:1], want_logits=True)
        verifier.forward(cache, HISTORY[:16], want_logits=True)
    assert len(seen.sizes) > 3
    assert all(size <= PIECE_ELEMENTS and size % VECTOR_ELEMENTS == 0 for size in seen.sizes)


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize(
    "architecture", ["Gemma3ForCausalLM", "Gemma4ForCausalLM", "Qwen3_5ForCausalLM"]
)
def test_threads_whose_shares_end_within_a_row_change_no_bits(
    random_checkpoint: Callable[..., Path], dtype: str, architecture: str
) -> None:
    # 16 rows of activations, attention gates and mixing gates of these sizes are divided
    # among threads at no multiple of a vector.
    sizes: dict[str, object] = {"intermediate_size": 5632, "num_attention_heads": 352}
    sizes |= {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}
    if architecture == "Qwen3_5ForCausalLM":
        sizes["linear_num_value_heads"] = 352
        sizes["layer_types"] = ["linear_attention", "full_attention"]
    if architecture == "Gemma4ForCausalLM":
        sizes |= {"hidden_size_per_layer_input": 5632, "num_kv_shared_layers": 0}
    path = random_checkpoint(architecture, hidden_size=352, **sizes)
    verifier = load_verifier(ModelFolder(path, "wide"), dtype=dtype)
    narrow = SPECS["narrow"]
    singles = run(verifier, verifier.allocate(narrow), HISTORY[:16], [1])
    blocks = run(verifier, verifier.allocate(narrow), HISTORY[:16], [16])
    assert blocks.tobytes() == singles.tobytes()


def test_every_kind_of_layer_is_among_the_families(random_checkpoint: Callable[..., Path]) -> None:
    found: set[object] = set()
    for architecture, config in FAMILIES.values():
        path = random_checkpoint(architecture, **config)
        layout = kv_layout(read_architecture(path), torch.float32)
        for layer in layout.layers:
            sliding = isinstance(layer, AttentionLayer) and layer.sliding_window is not None
            found.add("sliding" if sliding else type(layer))
    assert found == {AttentionLayer, "sliding", SharedLayer, RecurrentLayer}
