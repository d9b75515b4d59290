"""The torch back end against transformers' own eager attention under the rule's mask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.models.model_folder import ModelFolder

ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)
SINK, WINDOW = 3, 13
HISTORY = [(13 * index + index * index // 3) % 96 for index in range(20 * (SINK + WINDOW))]
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=1024)
RING = CacheSpec(CacheKind.SINK_WINDOW, sink=SINK, window=WINDOW)


def library_model(path: Path, dtype: torch.dtype = torch.float32):
    return transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, attn_implementation="eager"
    ).eval()


def reference(path: Path, sink: int, window: int) -> np.ndarray:
    """Logits of `HISTORY` in one uncached pass, the rule written out as a mask."""
    query = torch.arange(len(HISTORY))[:, None]
    key = torch.arange(len(HISTORY))[None]
    seen = (key <= query) & ((key < sink) | (key > query - window))
    mask = torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))
    with torch.inference_mode():
        output = library_model(path)(torch.tensor([HISTORY]), attention_mask=mask[None, None])
    return output.logits[0].numpy()


def engine_logits(path: Path, spec: CacheSpec, **options: object) -> np.ndarray:
    verifier = load_verifier(ModelFolder(path, "random"), **options)
    cache = verifier.allocate(spec)
    width = verifier.info.width
    return np.concatenate(
        [
            verifier.forward(cache, HISTORY[first : first + width], want_logits=True)
            for first in range(0, len(HISTORY), width)
        ]
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_are_those_of_the_rule(
    random_checkpoint: Callable[..., Path], architecture: str
) -> None:
    path = random_checkpoint(architecture)
    windowed = reference(path, SINK, WINDOW)
    full = reference(path, 0, len(HISTORY) + 1)
    # The rule matters here: were the window ignored, the next lines would fail.
    assert np.abs(windowed - full).max() > 0.1
    assert np.abs(engine_logits(path, RING) - windowed).max() < 1e-4
    assert np.abs(engine_logits(path, FULL) - full).max() < 1e-4


WIDE = {"hidden_size": 256, "intermediate_size": 640, "initializer_range": 0.06}
"""Layers large enough that their weights are packed."""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_packed_layers_are_the_same_layers(
    random_checkpoint: Callable[..., Path], architecture: str, dtype: str
) -> None:
    path = random_checkpoint(architecture, tie_word_embeddings=True, **WIDE)
    exact = reference(path, SINK, WINDOW)
    got = engine_logits(path, RING, dtype=dtype)
    bound = 1e-5 if dtype == "float32" else 0.05 * float(exact.std())
    assert np.sqrt(((got - exact) ** 2).mean()) < bound


def test_bfloat16_is_near(random_checkpoint: Callable[..., Path]) -> None:
    path = random_checkpoint()
    exact = reference(path, SINK, WINDOW)
    error = engine_logits(path, RING, dtype="bfloat16") - exact
    assert 0 < np.sqrt((error**2).mean()) < 0.05 * exact.std()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_decoding_is_that_of_transformers(
    random_checkpoint: Callable[..., Path], architecture: str
) -> None:
    path = random_checkpoint(architecture)
    model = library_model(path)
    verifier = load_verifier(ModelFolder(path, "random"))
    for first, length in ((0, 1), (7, 16), (40, 33), (100, 5)):
        prompt = HISTORY[first : first + length]
        output = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, length, dtype=torch.long),
            max_new_tokens=60,
            do_sample=False,
            pad_token_id=0,
        )
        cache = verifier.allocate(FULL)
        for start in range(0, length, 16):
            logits = verifier.forward(cache, prompt[start : start + 16], want_logits=True)
        tokens: list[int] = []
        for _ in range(60):
            tokens.append(int(logits[-1].argmax()))
            logits = verifier.forward(cache, tokens[-1:], want_logits=True)
        assert tokens == output[0, length:].tolist()
