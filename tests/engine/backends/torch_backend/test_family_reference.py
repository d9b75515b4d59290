"""Every family against transformers' own eager attention under the rule written out as masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend.architectures import read_architecture
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from scripts.train.tiny_families import GEMMA4_26B
from tests.support.breadth import all_wide_but
from tests.support.forwards import logits_of

SLIDING_WINDOW = 24
FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "Llama": ("LlamaForCausalLM", {}),
    "Qwen2": ("Qwen2ForCausalLM", {}),
    "Qwen3": ("Qwen3ForCausalLM", {}),
    "Mistral": ("MistralForCausalLM", {"sliding_window": SLIDING_WINDOW}),
    "Qwen3, sliding": (
        "Qwen3ForCausalLM",
        {"sliding_window": SLIDING_WINDOW, "use_sliding_window": True, "max_window_layers": 1},
    ),
    "Phi 3": ("Phi3ForCausalLM", {"sliding_window": SLIDING_WINDOW}),
    "OLMo 2": ("Olmo2ForCausalLM", {}),
    "Qwen3 MoE": ("Qwen3MoeForCausalLM", {}),
    # Shares that do not add up to 1, and a layer without experts.
    "Qwen3 MoE, mixed": (
        "Qwen3MoeForCausalLM",
        {"norm_topk_prob": False, "mlp_only_layers": [0], "num_hidden_layers": 3},
    ),
    "Mixtral": ("MixtralForCausalLM", {}),
    "gpt-oss": ("GptOssForCausalLM", {}),
    GEMMA4_26B: (GEMMA4_26B, {}),
    "Gemma 3": ("Gemma3ForCausalLM", {}),
    "Gemma 4": ("Gemma4ForCausalLM", {}),
    # No keys are values, and no layer shares any or has inputs of its own.
    "Gemma 4, plain": (
        "Gemma4ForCausalLM",
        {
            "attention_k_eq_v": False,
            "num_global_key_value_heads": None,
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 0,
        },
    ),
    "Gemma 4, shared keys without inputs of layers": (
        "Gemma4ForCausalLM",
        {"hidden_size_per_layer_input": 0, "use_double_wide_mlp": False},
    ),
    "Qwen3.5": ("Qwen3_5ForCausalLM", {}),
}
GENERATED = (
    "Llama",
    "Qwen2",
    "Mistral",
    "Qwen3, sliding",
    "Mixtral",
    "gpt-oss",
    "Gemma 3",
    "Gemma 4",
    "Qwen3.5",
)
HISTORY = [(13 * index + index * index // 3) % 96 for index in range(80)]
"""Past sink, window and sliding window of each cache, and round the ring of 64 slots."""
SPECS = {
    "full": CacheSpec(CacheKind.CONTIGUOUS, capacity=1024),
    "narrow": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13),
    "wide": CacheSpec(CacheKind.SINK_WINDOW, sink=5, window=40),
}


VARIANTS = (
    "Gemma 4, plain",
    "Gemma 4, shared keys without inputs of layers",
    "Qwen3",
    "Qwen3 MoE, mixed",
)
"""Of a family that is tried in another shape: each family is tried once."""


@pytest.fixture(
    scope="module", params=all_wide_but(lambda name: name not in VARIANTS, sorted(FAMILIES))
)
def path(request: pytest.FixtureRequest, random_checkpoint: Callable[..., Path]) -> Path:
    architecture, config = FAMILIES[request.param]
    return random_checkpoint(architecture, **config)


def library_model(path: Path, dtype: torch.dtype) -> transformers.PreTrainedModel:
    model: transformers.PreTrainedModel = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, attn_implementation="eager", experts_implementation="eager"
    )
    return model.eval()


def mask(spec: CacheSpec, sliding: int | None) -> torch.Tensor:
    """Additive [1, 1, queries, keys]: query i sees j as the cache and the layer have it."""
    query = torch.arange(len(HISTORY))[:, None]
    key = torch.arange(len(HISTORY))[None]
    seen = key <= query
    if spec.kind is CacheKind.SINK_WINDOW:
        seen &= (key < spec.sink) | (key > query - spec.window)
    if sliding is not None:
        seen &= key > query - sliding
    return torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))[None, None]


def library_logits(model: transformers.PreTrainedModel, spec: CacheSpec) -> np.ndarray:
    """Logits of `HISTORY` in one uncached pass."""
    config = model.config
    full, sliding = (mask(spec, window).to(model.dtype) for window in (None, SLIDING_WINDOW))
    masks = {"full_attention": full, "sliding_attention": sliding, "linear_attention": None}
    # A family without kinds of layers has one mask.
    is_sliding = getattr(config, "sliding_window", None) is not None
    kinds = getattr(config, "layer_types", None)
    with torch.inference_mode():
        output = model(
            torch.tensor([HISTORY]),
            attention_mask=masks if kinds else sliding if is_sliding else full,
            logits_to_keep=torch.arange(len(HISTORY)),
        )
    logits: np.ndarray = output.logits[0].float().numpy()
    return logits


def library_states(model: transformers.PreTrainedModel) -> np.ndarray:
    """The normed hidden states of `HISTORY` by the library's own masks."""
    with torch.inference_mode():
        states: np.ndarray = (
            model.model(torch.tensor([HISTORY]), output_hidden_states=True)
            .last_hidden_state[0]
            .numpy()
        )
    return states


def engine_states(verifier: Verifier) -> np.ndarray:
    """What the final norm gives of `HISTORY`, in forwards that want no logits."""
    cache, tap = verifier.allocate(SPECS["full"]), (verifier.info.layer_count,)
    most = min(cache.widest, verifier.row_counts[-1])
    rows: list[np.ndarray] = []
    while cache.length < len(HISTORY):
        feed = Feed(cache, HISTORY[cache.length :][:most], False, tap)
        features = verifier.forward_batch([feed])[0].features
        assert features is not None
        rows.append(features[:, 0])
    return np.concatenate(rows)


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt((values.astype(np.float64) ** 2).mean()))


def engine_logits(verifier: Verifier, spec: CacheSpec) -> np.ndarray:
    cache = verifier.allocate(spec)
    return np.concatenate(
        [
            logits_of(verifier, cache, HISTORY[first : first + 16])
            for first in range(0, len(HISTORY), 16)
        ]
    )


@dataclass(frozen=True)
class Exact:
    """What the library computes in double precision: logits under each rule, and states."""

    logits: dict[str, np.ndarray]
    states: np.ndarray


@pytest.fixture(scope="module")
def exact(path: Path) -> Exact:
    doubles = library_model(path, torch.float64)
    logits = {name: library_logits(doubles, spec) for name, spec in SPECS.items()}
    return Exact(logits, library_states(doubles))


def test_logits_are_those_of_the_rule(path: Path, exact: Exact) -> None:
    """As near as the library's own."""
    # The rule matters here: were a window ignored, the last lines would fail.
    for name, other in (("narrow", "wide"), ("narrow", "full")):
        assert np.abs(exact.logits[name] - exact.logits[other]).max() > 0.1
    verifier = load_verifier(ModelFolder(path, "random"))
    singles = library_model(path, torch.float32)
    for name, spec in SPECS.items():
        own = root_mean_square(engine_logits(verifier, spec) - exact.logits[name])
        library = root_mean_square(library_logits(singles, spec) - exact.logits[name])
        assert own < 2 * library < 1e-3, name
    own = root_mean_square(engine_states(verifier) - exact.states)
    assert own < 2 * root_mean_square(library_states(singles) - exact.states) < 1e-4


IN_HALVES = {"Llama", "OLMo 2", "Mixtral", "gpt-oss", "Gemma 4", "Qwen3.5"}
"""Families of each kind of layers: with norms elsewhere, of experts, with scores of no keys."""


@pytest.mark.parametrize(
    "path", all_wide_but(IN_HALVES.__contains__, sorted(FAMILIES)), indirect=True
)
def test_in_bfloat16_they_are_as_near_as_the_librarys_own(path: Path, exact: Exact) -> None:
    halves = load_verifier(ModelFolder(path, "random"), dtype="bfloat16")
    narrow, expected = SPECS["narrow"], exact.logits["narrow"]
    own = root_mean_square(engine_logits(halves, narrow) - expected)
    library = root_mean_square(
        library_logits(library_model(path, torch.bfloat16), narrow) - expected
    )
    # Rounded scores may send a row to another expert than the exact ones: whose do is chance.
    most = 2 if read_architecture(path).has_experts else 1.2
    assert 0 < own < most * library < 0.4 * expected.std()


# A step follows from the logits above: one family, with experts.
@pytest.mark.parametrize("name", all_wide_but(["Mixtral"], GENERATED))
def test_greedy_decoding_is_that_of_transformers(
    random_checkpoint: Callable[..., Path], name: str
) -> None:
    architecture, config = FAMILIES[name]
    path = random_checkpoint(architecture, **config)
    model = library_model(path, torch.float32)
    verifier = load_verifier(ModelFolder(path, "random"))
    prompt = HISTORY[:33]
    count = 40
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
    )
    tokens = output[0, len(prompt) :].tolist()
    assert len(tokens) == count
    # The choice behind every prefix of the expected stream is its next token: by
    # induction that is the greedy stream.
    cache = verifier.allocate(SPECS["full"])
    history = [*prompt, *tokens[:-1]]
    chosen: list[int] = []
    for first in range(0, len(history), 16):
        logits = logits_of(verifier, cache, history[first : first + 16])
        chosen += logits.argmax(axis=1).tolist()
    assert chosen[len(prompt) - 1 :] == tokens
    # It has not fallen into a short loop, which many a mistake would reach too.
    assert len(set(tokens[-30:])) > 2


WIDE = {"hidden_size": 256, "intermediate_size": 640, "initializer_range": 0.06}
"""Layers large enough that their weights are packed."""


@pytest.mark.parametrize(
    ("architecture", "dtype"),
    all_wide_but(
        [("Gemma3ForCausalLM", "float32"), ("Phi3ForCausalLM", "bfloat16")],
        [
            ("Qwen2ForCausalLM", "float32"),
            ("Qwen3ForCausalLM", "bfloat16"),
            ("Gemma3ForCausalLM", "float32"),
            ("Gemma4ForCausalLM", "bfloat16"),
            ("Qwen3_5ForCausalLM", "bfloat16"),
            ("Phi3ForCausalLM", "bfloat16"),
            ("Olmo2ForCausalLM", "float32"),
            ("MixtralForCausalLM", "float32"),
        ],
        several=True,
    ),
)
def test_packed_layers_are_the_same_layers(
    random_checkpoint: Callable[..., Path], architecture: str, dtype: str
) -> None:
    path = random_checkpoint(architecture, tie_word_embeddings=True, **WIDE)
    spec = SPECS["narrow"]
    exact = library_logits(library_model(path, torch.float64), spec)
    verifier = load_verifier(ModelFolder(path, "random"), dtype=dtype)
    own = root_mean_square(engine_logits(verifier, spec) - exact)
    library = root_mean_square(
        library_logits(library_model(path, getattr(torch, dtype)), spec) - exact
    )
    assert own < 1.5 * library
