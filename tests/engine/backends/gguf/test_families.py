"""A GGUF of each family computes what the checkpoint computes that it was made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support.breadth import all_wide_but
from tests.support.forwards import logits_of
from tests.support.gguf_files import write_gguf
from tests.support.own_cache import own_cache

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "Llama": ("LlamaForCausalLM", {}),
    "Llama 3": ("LlamaForCausalLM", {"rope_parameters": LLAMA3, "head_dim": 64}),
    "Llama, tied": ("LlamaForCausalLM", {"tie_word_embeddings": True}),
    "Llama, biases": ("LlamaForCausalLM", {"attention_bias": True}),
    "Mistral": ("MistralForCausalLM", {}),
    "Qwen2": ("Qwen2ForCausalLM", {}),
    "Qwen3": ("Qwen3ForCausalLM", {}),
    "Gemma 3": ("Gemma3ForCausalLM", {}),
    "Gemma 4": ("Gemma4ForCausalLM", {}),
    "Gemma 4, plain": (
        "Gemma4ForCausalLM",
        {
            "attention_k_eq_v": False,
            "num_global_key_value_heads": None,
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 0,
        },
    ),
    "Qwen3.5": (
        "Qwen3_5ForCausalLM",
        {
            "layer_types": ["linear_attention", "full_attention"] * 2,
            "num_hidden_layers": 4,
        },
    ),
}
HISTORY = [(13 * index + index * index // 3) % 96 for index in range(60)]
STEP = 20
"""Within what a sliding window takes at once."""
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=128)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))
    return tmp_path / "cache"


def logits(folder: ModelFolder) -> np.ndarray:
    verifier = load_verifier(folder, dtype="float32")
    cache = verifier.allocate(FULL)
    steps = []
    for start in range(0, len(HISTORY), STEP):
        ids = HISTORY[start : start + STEP]
        steps.append(logits_of(verifier, cache, ids))
        cache.truncate(start + len(ids))
    return np.concatenate(steps)


# One of each kind, and what a GGUF has otherwise: the order of rows, angles, biases.
KEPT = ("Llama", "Llama 3", "Llama, biases", "Qwen3", "Gemma 4", "Qwen3.5")


@pytest.mark.parametrize("family", all_wide_but(KEPT, FAMILIES))
def test_logits_are_those_of_the_checkpoint(
    family: str, random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    architecture, config = FAMILIES[family]
    folder = random_checkpoint(architecture, **config)
    path = write_gguf(folder, tmp_path / "model.gguf")
    read = resolve_model(str(path), dtype="float32")
    assert read.model_id == "model"
    expected = logits(ModelFolder(folder, "original"))
    # Norms that were kept as w + 1, and -exp(A), are rounded twice.
    np.testing.assert_allclose(logits(read), expected, rtol=0, atol=2e-4)


AS_THE_LIBRARY_READS: dict[str, tuple[str, dict[str, object]]] = {
    "Llama": ("LlamaForCausalLM", {}),
    "Llama, tied": ("LlamaForCausalLM", {"tie_word_embeddings": True}),
    "Qwen2": ("Qwen2ForCausalLM", {}),
    # The library takes its default of 128 for heads of any size, and the next of 256.
    "Qwen3": ("Qwen3ForCausalLM", {"head_dim": 128}),
    "Gemma 3": (
        "Gemma3ForCausalLM",
        {
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "num_hidden_layers": 6,
            "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
                "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            },
        },
    ),
}


@pytest.mark.parametrize(
    ("family", "kind"),
    all_wide_but(
        [("Llama", "Q8_0"), ("Gemma 3", "F32")],
        [(family, kind) for family in AS_THE_LIBRARY_READS for kind in ("F32", "Q8_0")],
        several=True,
    ),
)
def test_weights_are_those_that_transformers_reads(
    family: str, kind: str, random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    architecture, config = AS_THE_LIBRARY_READS[family]
    folder = random_checkpoint(architecture, hidden_size=64, intermediate_size=96, **config)
    path = write_gguf(folder, tmp_path / "model.gguf", gguf.GGMLQuantizationType[kind])
    read = resolve_model(str(path), dtype="float32")
    library = transformers.AutoModelForCausalLM.from_pretrained(
        str(tmp_path), gguf_file=path.name, dtype=torch.float32
    )
    ours = transformers.AutoModelForCausalLM.from_pretrained(read.path, dtype=torch.float32)
    expected, found = library.state_dict(), ours.state_dict()
    assert expected.keys() == found.keys()
    different = [name for name in expected if not torch.equal(expected[name], found[name])]
    assert not different
    with torch.inference_mode():
        ids = torch.tensor([HISTORY])
        assert torch.equal(library(ids).logits, ours(ids).logits)
