"""Every family: the history alone decides the bits, past every window, in float32 and bfloat16."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
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
from scripts.train.tiny_families import GEMMA4_26B
from tests.support.breadth import all_wide_but
from tests.support.forwards import logits_of

FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "Llama": ("LlamaForCausalLM", {}),
    "Mistral": ("MistralForCausalLM", {"sliding_window": 24}),
    "Qwen2": ("Qwen2ForCausalLM", {}),
    "Qwen3": ("Qwen3ForCausalLM", {}),
    "Phi 3": ("Phi3ForCausalLM", {"sliding_window": 24}),
    "OLMo 2": ("Olmo2ForCausalLM", {}),
    "Qwen3 MoE": ("Qwen3MoeForCausalLM", {}),
    "Mixtral": ("MixtralForCausalLM", {}),
    "gpt-oss": ("GptOssForCausalLM", {}),
    GEMMA4_26B: (GEMMA4_26B, {}),
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
HISTORY = [(17 * index + index * index // 3) % 96 for index in range(84)]
"""Past sink, window and sliding window, and round the ring of 64 slots."""
SPANS = (
    *((0, 18, 1), (18, 22, 4), (22, 27, 1), (27, 38, 11)),
    *((38, 48, 1), (48, 62, 14), (62, 76, 1), (76, 84, 8)),
)
"""First, end and size of blocks: one at a time where windows and the ring begin and end."""


# Pairwise: each kind of layer (plain, sliding, of shared keys, recurrent) meets each cache
# and each dtype, and each cache both dtypes. Without sliding layers "wide" is a "narrow".
CASES = [
    ("Llama", "narrow", "float32"),
    ("Qwen2", "full", "float32"),
    ("Qwen3", "full", "bfloat16"),
    ("Mistral", "wide", "float32"),
    ("Phi 3", "narrow", "bfloat16"),
    ("OLMo 2", "full", "float32"),
    ("Qwen3 MoE", "narrow", "float32"),
    ("Mixtral", "full", "bfloat16"),
    ("gpt-oss", "wide", "bfloat16"),
    ("gpt-oss", "narrow", "float32"),
    (GEMMA4_26B, "wide", "float32"),
    (GEMMA4_26B, "narrow", "bfloat16"),
    ("Gemma 3", "narrow", "bfloat16"),
    ("Gemma 4", "narrow", "float32"),
    ("Gemma 4", "full", "float32"),
    ("Gemma 4", "wide", "bfloat16"),
    ("Qwen3.5", "narrow", "bfloat16"),
    ("Qwen3.5", "full", "float32"),
]
# Each kind of layer, each cache and each dtype once.
KEPT = (
    ("Llama", "narrow", "float32"),
    ("gpt-oss", "wide", "bfloat16"),
    ("Gemma 4", "full", "float32"),
    ("Qwen3.5", "narrow", "bfloat16"),
)


@pytest.fixture(scope="module", params=all_wide_but(KEPT, CASES), ids=" ".join)
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
    """The logits of `HISTORY`, taken one at a time wherever what is seen changes its place."""
    cache = verifier.allocate(spec)
    return np.concatenate([run(verifier, cache, HISTORY[a:b], [size]) for a, b, size in SPANS])


def run(
    verifier: Verifier, cache: KvCache, tokens: Sequence[int], sizes: Sequence[int]
) -> np.ndarray:
    """The logits of `tokens` in blocks of `sizes`, over and over."""
    rows: list[np.ndarray] = []
    done = 0
    while done < len(tokens):
        chunk = tokens[done : done + sizes[len(rows) % len(sizes)]]
        logits = logits_of(verifier, cache, chunk)
        rows.append(logits)
        done += len(chunk)
    return np.concatenate(rows)


def test_blocks_with_rejected_tokens_are_single_steps(
    verifier: Verifier, spec: CacheSpec, single_steps: np.ndarray
) -> None:
    rng = random.Random(0)
    cache = verifier.allocate(spec)
    while cache.length < len(HISTORY):
        start = cache.length
        right = HISTORY[start : start + rng.randint(1, 16)]
        wrong = [rng.randrange(96) for _ in range(rng.randint(0, 16 - len(right)))]
        got = logits_of(verifier, cache, right + wrong)
        kept = start + len(right)
        cache.truncate(kept)
        expected = single_steps[start:kept]
        assert got[: len(right)].tobytes() == expected.tobytes(), start


def test_the_widest_forwards_are_single_steps(
    verifier: Verifier, spec: CacheSpec, single_steps: np.ndarray
) -> None:
    cache = verifier.allocate(spec)
    got = run(verifier, cache, HISTORY, [min(cache.widest, verifier.row_counts[-1])])
    assert got.tobytes() == single_steps.tobytes()


def test_a_fork_is_rolled_back_into_its_block(
    verifier: Verifier, spec: CacheSpec, single_steps: np.ndarray
) -> None:
    start = 62
    cache = verifier.allocate(spec)
    run(verifier, cache, HISTORY[:start], [16])
    for kept in (0, 1, 5, 8, 15, 16):
        fork = cache.fork(start)
        wrong = [(token + 1) % 96 for token in HISTORY[start + kept : start + 16]]
        block = HISTORY[start : start + kept] + wrong
        verifier.forward(fork, block, want_logits=False)
        # In two cuts: what a first one keeps, a second one can still cut off.
        fork.truncate(start + (kept + 16) // 2)
        fork.truncate(start + kept)
        end = start + kept + 5
        got = logits_of(verifier, fork, HISTORY[start + kept : end])
        assert got.tobytes() == single_steps[start + kept : end].tobytes(), kept
        if kept == 16:
            # Far enough to write over all that it shares with its source.
            run(verifier, fork, [(token + 7) % 96 for token in HISTORY[:64]], [16])
        fork.release()
    got = run(verifier, cache, HISTORY[start:], [16])
    assert got.tobytes() == single_steps[start:].tobytes()


def test_sessions_that_share_a_forward_are_as_alone(
    verifier: Verifier, spec: CacheSpec, single_steps: np.ndarray
) -> None:
    starts = [0, 33, 74, 64]
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
        got = logits_of(verifier, cache, HISTORY[end : end + 3])
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

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func in self.FUNCTIONS:
            assert isinstance(args[0], torch.Tensor)
            self.sizes.append(args[0].numel())
        return func(*args, **(kwargs or {}))


# One of each activation: SiLU, GELU, and the sigmoids of experts and of a recurrence.
ACTIVATIONS = ("LlamaForCausalLM", "GptOssForCausalLM", "Gemma4ForCausalLM", "Qwen3_5ForCausalLM")


@pytest.mark.parametrize(
    "architecture", all_wide_but(ACTIVATIONS, [name for name, _ in FAMILIES.values()])
)
def test_no_element_meets_the_formula_of_a_tensors_end(
    random_checkpoint: Callable[..., Path], architecture: str
) -> None:
    # No vector divides rows of these sizes, and 16 of them are more than one piece.
    sizes: dict[str, object] = {"num_attention_heads": 1, "num_key_value_heads": 1}
    if architecture == "Gemma4ForCausalLM":
        sizes |= {"num_global_key_value_heads": 1, "hidden_size_per_layer_input": 7}
    if architecture == "Qwen3_5ForCausalLM":
        sizes |= {"linear_num_key_heads": 1, "linear_num_value_heads": 1}
    path = random_checkpoint(architecture, intermediate_size=1031, **sizes)
    verifier = load_verifier(ModelFolder(path, "random"))
    cache = verifier.allocate(SPECS["full"])
    with SeenSizes() as seen:
        verifier.forward(cache, HISTORY[:1], want_logits=True)
        verifier.forward(cache, HISTORY[:16], want_logits=True)
    assert len(seen.sizes) > 3
    assert all(size <= PIECE_ELEMENTS and size % VECTOR_ELEMENTS == 0 for size in seen.sizes)


def test_every_kind_of_layer_is_among_the_families(random_checkpoint: Callable[..., Path]) -> None:
    found: set[object] = set()
    for architecture, config in FAMILIES.values():
        path = random_checkpoint(architecture, **config)
        layout = kv_layout(read_architecture(path), torch.float32)
        for layer in layout.layers:
            sliding = isinstance(layer, AttentionLayer) and layer.sliding_window is not None
            found.add("sliding" if sliding else type(layer))
    assert found == {AttentionLayer, "sliding", SharedLayer, RecurrentLayer}
