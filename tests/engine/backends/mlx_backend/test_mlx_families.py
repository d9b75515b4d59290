"""Each family on MLX against the torch back end: the same model out of the same folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from scripts.train.tiny_families import GEMMA4_26B
from tests.support import forwards
from tests.support.breadth import all_wide_but

pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("torch", reason="torch is not installed")

FAMILIES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "MixtralForCausalLM",
    "Phi3ForCausalLM",
    "Olmo2ForCausalLM",
    "Gemma3ForCausalLM",
    "Gemma4ForCausalLM",
    "Qwen3_5ForCausalLM",
)
KEPT = ("LlamaForCausalLM", "MixtralForCausalLM", "Gemma4ForCausalLM", "Qwen3_5ForCausalLM")
"""All is seen, experts, layers that share keys, a recurrence."""
WRAPPED = (
    "Gemma3ForConditionalGeneration",
    "Gemma4ForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration",
)
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=400)
RING = CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13)
HISTORY = [(13 * index + index * index // 3) % 96 for index in range(100)]

VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "llama3 rope": (
        "LlamaForCausalLM",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 5e5,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    # The base alone: read from the wrong place it would be mlx-lm's default.
    "another rope_theta": (
        "LlamaForCausalLM",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 77.0}},
    ),
    "yarn": (
        "Qwen3ForCausalLM",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "linear rope": (
        "Qwen2ForCausalLM",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
    ),
    "biases": ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    "sliding layers": ("MistralForCausalLM", {"sliding_window": 24}),
    "some sliding layers": (
        "Qwen2ForCausalLM",
        {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1},
    ),
    "tied": ("Qwen3ForCausalLM", {"tie_word_embeddings": True}),
    "experts beside a layer of all": (GEMMA4_26B, {}),
    "experts in some layers": (
        "Qwen3MoeForCausalLM",
        {"norm_topk_prob": False, "mlp_only_layers": [0], "num_hidden_layers": 3},
    ),
    "partly turned heads": (
        "Phi3ForCausalLM",
        {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.75,
            }
        },
    ),
    # Its square root is far from any bfloat16.
    "scale of the embedding": ("Gemma3ForCausalLM", {"hidden_size": 44}),
}
KEPT_VARIANTS = (
    "llama3 rope",
    "yarn",
    "linear rope",
    "biases",
    "some sliding layers",
    "partly turned heads",
    "scale of the embedding",
)


@pytest.fixture(scope="module")
def both(random_checkpoint: Callable[..., Path]) -> Callable[[str], tuple[Verifier, Verifier]]:
    """A family's random model on MLX and on torch."""

    def make(family: str) -> tuple[Verifier, Verifier]:
        path = random_checkpoint(family)
        return load(path, "mlx"), load(path, "torch")

    return cache(make)


def load(path: Path, backend: str, dtype: str = "float32") -> Verifier:
    return load_verifier(ModelFolder(path, "random"), backend=backend, dtype=dtype)


def logits_of(verifier: Verifier, spec: CacheSpec) -> np.ndarray:
    session = verifier.allocate(spec)
    return np.concatenate(
        [
            forwards.logits_of(verifier, session, HISTORY[first : first + 16])
            for first in range(0, len(HISTORY), 16)
        ]
    )


PROMPT = HISTORY[:40]


def greedy(verifier: Verifier, spec: CacheSpec, count: int) -> list[int]:
    """The stream behind `PROMPT`, one token a forward."""
    session = verifier.allocate(spec)
    for first in range(0, len(PROMPT), 10):
        logits = forwards.logits_of(verifier, session, PROMPT[first : first + 10])
    tokens: list[int] = []
    for _ in range(count):
        tokens.append(int(logits[-1].argmax()))
        logits = forwards.logits_of(verifier, session, tokens[-1:])
    return tokens


def choices(verifier: Verifier, spec: CacheSpec, stream: list[int]) -> list[int]:
    """The greedy choice behind `PROMPT` and each prefix of `stream` but the whole.

    Where they are `stream`, it is the verifier's own greedy stream, by induction.
    """
    session = verifier.allocate(spec)
    history = [*PROMPT, *stream[:-1]]
    chosen: list[int] = []
    for first in range(0, len(history), 16):
        logits = forwards.logits_of(verifier, session, history[first : first + 16])
        chosen += logits.argmax(axis=1).tolist()
    return chosen[len(PROMPT) - 1 :]


def normed(verifier: Verifier) -> np.ndarray:
    """What the final norm gives of the first tokens of `HISTORY`."""
    tap = (verifier.info.layer_count,)
    feed = Feed(verifier.allocate(FULL), HISTORY[:12], want_logits=False, taps=tap)
    features = verifier.forward_batch([feed])[0].features
    assert features is not None
    return features


@pytest.mark.parametrize("family", all_wide_but(KEPT, FAMILIES))
def test_greedy_tokens_are_those_of_torch(
    both: Callable[[str], tuple[Verifier, Verifier]], family: str
) -> None:
    mlx, torch = both(family)
    full, ring = (greedy(torch, spec, 12) for spec in (FULL, RING))
    assert len(full) == len(ring) == 12
    assert choices(mlx, FULL, full) == full
    assert choices(mlx, RING, ring) == ring
    assert greedy(mlx, RING, 8) == ring[:8]
    # The window matters here: were it ignored, the two would be one.
    assert full != ring
    assert np.abs(normed(mlx) - normed(torch)).max() < 1e-4


@pytest.mark.parametrize("family", all_wide_but(["Gemma3ForConditionalGeneration"], WRAPPED))
def test_the_text_part_of_several_modalities_is_that_of_torch(
    random_checkpoint: Callable[..., Path], family: str
) -> None:
    path = random_checkpoint(family)
    got, expected = (logits_of(load(path, backend), RING) for backend in ("mlx", "torch"))
    assert np.abs(got - expected).max() < 1e-3


@pytest.mark.parametrize("variant", all_wide_but(KEPT_VARIANTS, sorted(VARIANTS)))
def test_logits_are_those_of_torch(random_checkpoint: Callable[..., Path], variant: str) -> None:
    family, config = VARIANTS[variant]
    path = random_checkpoint(family, **config)
    mlx, torch = load(path, "mlx"), load(path, "torch")
    # Full attention, whose positions go further than the ring's.
    assert np.abs(logits_of(mlx, FULL) - logits_of(torch, FULL)).max() < 1e-4


@pytest.mark.parametrize("family", all_wide_but(KEPT, FAMILIES))
def test_tapped_layers_are_those_of_torch(
    both: Callable[[str], tuple[Verifier, Verifier]], family: str
) -> None:
    found = []
    for verifier in both(family):
        last = verifier.info.layer_count - 1
        session = verifier.allocate(RING)
        verifier.forward(session, HISTORY[:30], want_logits=False)
        (output,) = verifier.forward_batch([Feed(session, HISTORY[30:35], False, (last, 0))])
        assert output.logits is None
        assert output.features is not None
        assert output.features.shape == (5, 2, verifier.info.hidden_size)
        assert output.features.dtype == np.float32
        found.append(output.features)
        # A tap leaves nothing behind, and changes nothing.
        (untapped,) = verifier.forward_batch([Feed(session, HISTORY[35:36], True)])
        assert untapped.features is None
        assert untapped.logits is not None
    assert np.abs(found[0] - found[1]).max() < 1e-3
    assert np.abs(found[0][:, 0] - found[0][:, 1]).max() > 0.1


SAME_ON_THE_CARD = (
    "model_id",
    "architecture",
    "weights_digest",
    "tokenizer_digest",
    "quantization",
    "dtype",
    "vocabulary_size",
    "context_length",
    "kv_bytes_per_token",
    "width",
    "layer_count",
    "hidden_size",
)


@pytest.mark.parametrize("family", all_wide_but(KEPT, FAMILIES))
def test_the_same_card_as_torch(
    both: Callable[[str], tuple[Verifier, Verifier]], family: str
) -> None:
    mlx, torch = (verifier.info for verifier in both(family))
    for name in SAME_ON_THE_CARD:
        assert getattr(mlx, name) == getattr(torch, name), name
    assert (mlx.backend, torch.backend) == ("mlx", "torch")


@pytest.mark.parametrize(
    "family", all_wide_but(["Qwen3ForCausalLM"], ["Qwen3ForCausalLM", "Gemma3ForCausalLM"])
)
def test_bfloat16_is_near(random_checkpoint: Callable[..., Path], family: str) -> None:
    path = random_checkpoint(family)
    exact = logits_of(load(path, "mlx"), RING)
    rounded, torch = (load(path, backend, "bfloat16") for backend in ("mlx", "torch"))
    error = logits_of(rounded, RING) - exact
    assert 0 < np.sqrt((error**2).mean()) < 0.05 * exact.std()
    assert rounded.info.kv_bytes_per_token == torch.info.kv_bytes_per_token
    assert rounded.info.dtype == torch.info.dtype == "bfloat16"
