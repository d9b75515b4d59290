"""Every back end: a checkpoint loads whole and as meant, or is refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from kakeya_fleet.engine.backends import BACKENDS, installed_backends, load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Logits, Verifier
from kakeya_fleet.engine.errors import (
    ArchitectureUnsupported,
    BadParameters,
    ModelNotFound,
    ModelUnusable,
    OutOfMemory,
    WeightsMismatch,
)
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support.breadth import wide

NORM = "model.layers.1.input_layernorm.weight"
EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
WIDE = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)
Load = Callable[..., Verifier]


@pytest.fixture(scope="module", params=sorted(BACKENDS))
def load(request: pytest.FixtureRequest) -> Load:
    if request.param not in installed_backends():
        pytest.skip(f"the libraries of the back end {request.param} are not installed")

    def run(path: Path, *, dtype: str = "float32", available_bytes: int | None = None) -> Verifier:
        folder = ModelFolder(path, path.name)
        return load_verifier(
            folder, backend=request.param, dtype=dtype, available_bytes=available_bytes
        )

    return run


def logits_of(verifier: Verifier) -> Logits:
    logits = verifier.forward(verifier.allocate(WIDE), [5, 4, 3], want_logits=True)
    assert logits is not None
    return logits


@pytest.fixture
def checkpoint(random_checkpoint: Callable[..., Path], tmp_path: Path) -> Path:
    """A checkpoint of its own, to be damaged."""
    return Path(shutil.copytree(random_checkpoint(), tmp_path / "model"))


Weights = dict[str, torch.Tensor]


def change_weights(path: Path, change: Callable[[Weights], object]) -> None:
    weights = load_file(path / "model.safetensors")
    change(weights)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})


def change_config(path: Path, **entries: object) -> None:
    config = json.loads((path / "config.json").read_text())
    config.update(entries)
    (path / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda weights: weights.pop(NORM), f"missing: {NORM}"),
        (lambda weights: weights.update({"fc.weight": weights[HEAD] * 2}), "unexpected: fc.weight"),
        (lambda weights: weights.update({NORM: weights[NORM][:-1].clone()}), "wrong shape"),
        (lambda weights: weights.update({NORM: weights[NORM].int()}), f"(point|type): {NORM}"),
    ],
    ids=["missing", "unexpected", "misshaped", "integer"],
)
def test_weights_that_are_not_the_models_are_named(
    load: Load, checkpoint: Path, change: Callable[[Weights], object], named: str
) -> None:
    change_weights(checkpoint, change)
    with pytest.raises(WeightsMismatch, match=named):
        load(checkpoint)


@pytest.mark.parametrize("kept", [0, 4, 100, 5000, -1])
def test_a_truncated_file_is_named(load: Load, checkpoint: Path, kept: int) -> None:
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(WeightsMismatch, match=r"model\.safetensors is truncated"):
        load(checkpoint)


@pytest.mark.parametrize("family", ["Qwen3ForCausalLM", wide("Gemma3ForCausalLM")])
def test_a_head_is_stored_unless_it_is_tied_and_then_it_is_the_embedding(
    load: Load, random_checkpoint: Callable[..., Path], tmp_path: Path, family: str
) -> None:
    untied = random_checkpoint(family, tie_word_embeddings=False)
    checkpoint = Path(shutil.copytree(untied, tmp_path / "model"))
    change_config(checkpoint, tie_word_embeddings=True)
    with pytest.raises(WeightsMismatch, match="stored ones differ"):
        load(checkpoint)
    change_weights(checkpoint, lambda weights: weights.update({HEAD: weights[EMBEDDING].clone()}))
    stored = logits_of(load(checkpoint))
    change_weights(checkpoint, lambda weights: weights.pop(HEAD))
    assert np.array_equal(logits_of(load(checkpoint)), stored)
    change_config(checkpoint, tie_word_embeddings=False)
    with pytest.raises(WeightsMismatch, match=f"missing: {HEAD}"):
        load(checkpoint)


def test_derived_buffers_of_older_checkpoints_are_no_weights(load: Load, checkpoint: Path) -> None:
    before = logits_of(load(checkpoint))
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change_weights(checkpoint, lambda weights: weights.update({name: weights[NORM].clone() * 99}))
    assert np.array_equal(logits_of(load(checkpoint)), before)


def test_shards_are_one_model(
    load: Load, random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    whole, sharded = random_checkpoint(), random_checkpoint(shards=True)
    shards = sorted(path.name for path in sharded.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert np.array_equal(logits_of(load(sharded)), logits_of(load(whole)))
    torn = Path(shutil.copytree(sharded, tmp_path / "torn"))
    (torn / shards[1]).unlink()
    with pytest.raises(WeightsMismatch, match=shards[1]):
        load(torn)
    shutil.copy(torn / shards[0], torn / shards[1])
    with pytest.raises(WeightsMismatch, match=f"is in {shards[0]} and in {shards[1]}"):
        load(torn)


@pytest.mark.parametrize("architectures", [["GPT2LMHeadModel"], ["DFlashDraftModel"], [], None])
def test_other_architectures_are_refused_by_name(
    load: Load, checkpoint: Path, architectures: list[str] | None
) -> None:
    change_config(checkpoint, architectures=architectures)
    with pytest.raises(ArchitectureUnsupported, match=r"served are \w+ForCausalLM") as caught:
        load(checkpoint)
    assert (architectures or ["qwen3"])[0] in str(caught.value)


def test_a_model_type_of_another_architecture_is_refused(load: Load, checkpoint: Path) -> None:
    change_config(checkpoint, model_type="llama")
    with pytest.raises(ArchitectureUnsupported, match="in disguise"):
        load(checkpoint)


@pytest.mark.parametrize("config", ["{", "[]", '{"architectures": ["Qwen3ForCausalLM"]'])
def test_a_broken_config(load: Load, checkpoint: Path, config: str) -> None:
    (checkpoint / "config.json").write_text(config)
    with pytest.raises(ModelUnusable, match=r"config\.json"):
        load(checkpoint)


def test_a_config_with_wrong_types(load: Load, checkpoint: Path) -> None:
    change_config(checkpoint, hidden_size="wide")
    with pytest.raises(ModelUnusable, match="hidden_size"):
        load(checkpoint)


def test_no_config_and_no_tokenizer(load: Load, checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(ModelNotFound, match=r"tokenizer\.json"):
        load(checkpoint)
    (checkpoint / "config.json").unlink()
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        load(checkpoint)


def test_too_little_memory_is_foretold(load: Load, checkpoint: Path) -> None:
    size = (checkpoint / "model.safetensors").stat().st_size
    with pytest.raises(OutOfMemory, match="bytes of memory") as caught:
        load(checkpoint, available_bytes=size)
    needed = int(caught.value.metadata["needed_bytes"])
    assert size < needed
    assert int(caught.value.metadata["available_bytes"]) == size
    load(checkpoint, available_bytes=needed)
    with pytest.raises(OutOfMemory) as caught:
        load(checkpoint, available_bytes=size // 2, dtype="bfloat16")
    half = int(caught.value.metadata["needed_bytes"])
    assert half < needed
    load(checkpoint, available_bytes=half, dtype="bfloat16")
    with pytest.raises(OutOfMemory):
        load(checkpoint, available_bytes=half - 1, dtype="bfloat16")


def test_unknown_options_are_refused(load: Load, checkpoint: Path) -> None:
    with pytest.raises(BadParameters, match="int4"):
        load(checkpoint, dtype="int4")
