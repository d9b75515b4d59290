"""A checkpoint loads whole and as meant on MLX, or is refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import (
    ArchitectureUnsupported,
    BadParameters,
    ModelNotFound,
    ModelUnusable,
    OutOfMemory,
    WeightsMismatch,
)
from kakeya_fleet.engine.models.model_folder import ModelFolder

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")

NORM = "model.layers.1.input_layernorm.weight"
EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
WIDE = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)


def load(path: Path, **options: object):
    return load_verifier(ModelFolder(path, path.name), backend="mlx", **options)


def logits_of(path: Path) -> np.ndarray:
    verifier = load(path)
    return verifier.forward(verifier.allocate(WIDE), [5, 4, 3], want_logits=True)


@pytest.fixture
def checkpoint(random_checkpoint: Callable[..., Path], tmp_path: Path) -> Path:
    """A checkpoint of its own, to be damaged."""
    return Path(shutil.copytree(random_checkpoint(), tmp_path / "model"))


def change_weights(path: Path, change: Callable[[dict], object]) -> None:
    weights = mx.load(str(path / "model.safetensors"))
    mx.eval(weights)
    change(weights)
    mx.save_safetensors(str(path / "model.safetensors"), weights, {"format": "pt"})


def change_config(path: Path, **entries: object) -> None:
    config = json.loads((path / "config.json").read_text())
    config.update(entries)
    (path / "config.json").write_text(json.dumps(config))


def test_missing_weights_are_named(checkpoint: Path) -> None:
    change_weights(checkpoint, lambda weights: weights.pop(NORM))
    with pytest.raises(WeightsMismatch, match=f"missing: {NORM}") as caught:
        load(checkpoint)
    assert caught.value.metadata["missing"] == NORM


def test_unexpected_weights_are_named(checkpoint: Path) -> None:
    change_weights(checkpoint, lambda weights: weights.update({"fc.weight": weights[NORM] * 2}))
    with pytest.raises(WeightsMismatch, match=r"unexpected: fc\.weight"):
        load(checkpoint)


def test_misshaped_weights_are_named(checkpoint: Path) -> None:
    change_weights(checkpoint, lambda weights: weights.update({NORM: weights[NORM][:-1]}))
    with pytest.raises(WeightsMismatch, match=f"wrong shape: {NORM}"):
        load(checkpoint)


def test_integer_weights_are_named(checkpoint: Path) -> None:
    change_weights(
        checkpoint, lambda weights: weights.update({NORM: weights[NORM].astype(mx.int32)})
    )
    with pytest.raises(WeightsMismatch, match=f"wrong type: {NORM}"):
        load(checkpoint)


@pytest.mark.parametrize("kept", [0, 4, 100, 5000, -1])
def test_a_truncated_file_is_named(checkpoint: Path, kept: int) -> None:
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(WeightsMismatch, match=r"model\.safetensors is truncated"):
        load(checkpoint)


@pytest.mark.parametrize("family", ["Qwen3ForCausalLM", "Gemma3ForCausalLM"])
def test_a_missing_head_counts_unless_it_is_tied(
    random_checkpoint: Callable[..., Path], tmp_path: Path, family: str
) -> None:
    path = random_checkpoint(family, tie_word_embeddings=False)
    checkpoint = Path(shutil.copytree(path, tmp_path / "model"))
    change_weights(checkpoint, lambda weights: weights.pop(HEAD))
    with pytest.raises(WeightsMismatch, match=f"missing: {HEAD}"):
        load(checkpoint)
    change_config(checkpoint, tie_word_embeddings=True)
    assert np.isfinite(logits_of(checkpoint)).all()


@pytest.mark.parametrize("family", ["Qwen3ForCausalLM", "Gemma3ForCausalLM"])
def test_a_stored_tied_head_must_be_the_embedding(
    random_checkpoint: Callable[..., Path], tmp_path: Path, family: str
) -> None:
    path = random_checkpoint(family, tie_word_embeddings=False)
    checkpoint = Path(shutil.copytree(path, tmp_path / "model"))
    change_config(checkpoint, tie_word_embeddings=True)
    with pytest.raises(WeightsMismatch, match="stored ones differ"):
        load(checkpoint)
    change_weights(checkpoint, lambda weights: weights.update({HEAD: weights[EMBEDDING]}))
    stored = logits_of(checkpoint)
    change_weights(checkpoint, lambda weights: weights.pop(HEAD))
    assert np.array_equal(logits_of(checkpoint), stored)


def test_derived_buffers_of_older_checkpoints_are_no_weights(checkpoint: Path) -> None:
    before = logits_of(checkpoint)
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change_weights(checkpoint, lambda weights: weights.update({name: weights[NORM] * 99}))
    assert np.array_equal(logits_of(checkpoint), before)


def test_shards_are_one_model(random_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    whole, sharded = random_checkpoint(), random_checkpoint(shards=True)
    shards = sorted(path.name for path in sharded.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert np.array_equal(logits_of(sharded), logits_of(whole))
    torn = Path(shutil.copytree(sharded, tmp_path / "torn"))
    (torn / shards[1]).unlink()
    with pytest.raises(WeightsMismatch, match=shards[1]):
        load(torn)
    shutil.copy(torn / shards[0], torn / shards[1])
    with pytest.raises(WeightsMismatch, match=f"is in {shards[0]} and in {shards[1]}"):
        load(torn)


@pytest.mark.parametrize("architectures", [["GPT2LMHeadModel"], ["DFlashDraftModel"], [], None])
def test_other_architectures_are_refused_by_name(
    checkpoint: Path, architectures: list[str] | None
) -> None:
    change_config(checkpoint, architectures=architectures)
    with pytest.raises(ArchitectureUnsupported, match=r"served are LlamaForCausalLM") as caught:
        load(checkpoint)
    assert (architectures or ["qwen3"])[0] in str(caught.value)


def test_a_model_type_of_another_architecture_is_refused(checkpoint: Path) -> None:
    change_config(checkpoint, model_type="llama")
    with pytest.raises(ArchitectureUnsupported, match="in disguise"):
        load(checkpoint)


def test_code_in_the_folder_is_not_run(checkpoint: Path) -> None:
    (checkpoint / "modeling_own.py").write_text("raise SystemExit('was run')")
    change_config(checkpoint, model_file="modeling_own.py")
    assert np.isfinite(logits_of(checkpoint)).all()


REFUSED: dict[str, tuple[str, dict[str, object], str]] = {
    "dynamic rope": (
        "Qwen3ForCausalLM",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
        "dynamic",
    ),
    "yarn with an option of its own": (
        "Qwen3ForCausalLM",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 2.0,
                "attention_factor": 1.5,
            }
        },
        "YaRN",
    ),
    "another library's quantization": (
        "Qwen3ForCausalLM",
        {"quantization_config": {"quant_method": "awq"}},
        "another library",
    ),
    "another activation": ("LlamaForCausalLM", {"hidden_act": "gelu"}, "activation gelu"),
    "part of a head turned": (
        "LlamaForCausalLM",
        {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
            }
        },
        "partial_rotary_factor",
    ),
    "biases in attention": ("Qwen3ForCausalLM", {"attention_bias": True}, "biases"),
    "capped scores": ("Gemma3ForCausalLM", {"attn_logit_softcapping": 50.0}, "soft cap"),
    "capped logits": ("Gemma3ForCausalLM", {"final_logit_softcapping": 30.0}, "softcapping"),
    "uneven layers": (
        "Gemma3ForCausalLM",
        {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        "uneven distances",
    ),
    "experts": ("Gemma4ForCausalLM", {"enable_moe_block": True}, "mixture-of-experts"),
    "an unknown kind of layer": (
        "Qwen3_5ForCausalLM",
        {"layer_types": ["linear_attention", "full_attention", "sliding_attention"]},
        "sliding_attention",
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_would_run_but_not_as_meant_is_refused(
    random_checkpoint: Callable[..., Path], tmp_path: Path, case: str
) -> None:
    family, entries, named = REFUSED[case]
    checkpoint = Path(shutil.copytree(random_checkpoint(family), tmp_path / "model"))
    change_config(checkpoint, **entries)
    with pytest.raises(ArchitectureUnsupported, match=named):
        load(checkpoint)


@pytest.mark.parametrize("config", ["{", "[]", '{"architectures": ["Qwen3ForCausalLM"]'])
def test_a_broken_config(checkpoint: Path, config: str) -> None:
    (checkpoint / "config.json").write_text(config)
    with pytest.raises(ModelUnusable, match=r"config\.json"):
        load(checkpoint)


@pytest.mark.parametrize("entry", ["max_position_embeddings", "sliding_window"])
def test_a_config_without_positions(
    random_checkpoint: Callable[..., Path], tmp_path: Path, entry: str
) -> None:
    path = Path(shutil.copytree(random_checkpoint("MistralForCausalLM"), tmp_path / "model"))
    change_config(path, **{entry: 0})
    with pytest.raises(ModelUnusable, match=f"{entry} is 0"):
        load(path)


@pytest.mark.parametrize("entries", [{"num_attention_heads": 0}, {"vocab_size": 0}])
def test_a_config_of_no_model(checkpoint: Path, entries: dict[str, object]) -> None:
    change_config(checkpoint, **entries)
    with pytest.raises(ModelUnusable, match=r"config\.json"):
        load(checkpoint)


def test_a_config_with_wrong_types(checkpoint: Path) -> None:
    change_config(checkpoint, hidden_size="wide")
    with pytest.raises(ModelUnusable, match="hidden_size"):
        load(checkpoint)


def test_no_config_and_no_tokenizer(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(ModelNotFound, match=r"tokenizer\.json"):
        load(checkpoint)
    (checkpoint / "config.json").unlink()
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        load(checkpoint)


def test_too_little_memory_is_foretold(checkpoint: Path) -> None:
    size = (checkpoint / "model.safetensors").stat().st_size
    with pytest.raises(OutOfMemory, match="bytes of memory") as caught:
        load(checkpoint, available_bytes=size)
    needed = int(caught.value.metadata["needed_bytes"])
    assert size < needed < 2 * size
    load(checkpoint, available_bytes=needed)
    with pytest.raises(OutOfMemory):
        load(checkpoint, available_bytes=needed // 2 - 1, dtype="bfloat16")
    load(checkpoint, available_bytes=needed // 2, dtype="bfloat16")


def test_weights_take_their_bytes_and_no_more(
    random_checkpoint: Callable[..., Path],
) -> None:
    path = random_checkpoint("Qwen3ForCausalLM", intermediate_size=4096)
    size = (path / "model.safetensors").stat().st_size
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    verifier = load(path, dtype="bfloat16")
    assert mx.get_active_memory() - before < 0.6 * size
    # One tensor at a time is there in both types.
    assert mx.get_peak_memory() - before < size
    assert verifier.info.dtype == "bfloat16"


@pytest.mark.parametrize("options", [{"dtype": "int4"}])
def test_unknown_options_are_refused(checkpoint: Path, options: dict[str, object]) -> None:
    with pytest.raises(BadParameters):
        load(checkpoint, **options)
