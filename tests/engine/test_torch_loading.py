"""A checkpoint loads whole and as meant, or is refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

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

NORM = "model.layers.1.input_layernorm.weight"
EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
WIDE = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)


def load(path: Path, **options: object):
    return load_verifier(ModelFolder(path, path.name), **options)


def logits_of(path: Path) -> np.ndarray:
    verifier = load(path)
    return verifier.forward(verifier.allocate(WIDE), [5, 4, 3], want_logits=True)


@pytest.fixture
def checkpoint(random_checkpoint: Callable[..., Path], tmp_path: Path) -> Path:
    """A checkpoint of its own, to be damaged."""
    return Path(shutil.copytree(random_checkpoint(), tmp_path / "model"))


def change_weights(path: Path, change: Callable[[dict], object]) -> None:
    weights = load_file(path / "model.safetensors")
    change(weights)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})


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
    change_weights(checkpoint, lambda weights: weights.update({NORM: weights[NORM][:-1].clone()}))
    with pytest.raises(WeightsMismatch, match=f"wrong shape: {NORM}"):
        load(checkpoint)


def test_integer_weights_are_named(checkpoint: Path) -> None:
    change_weights(checkpoint, lambda weights: weights.update({NORM: weights[NORM].int()}))
    with pytest.raises(WeightsMismatch, match=f"not floating point: {NORM}"):
        load(checkpoint)


@pytest.mark.parametrize("kept", [0, 4, 100, 5000])
def test_a_truncated_file_is_named(checkpoint: Path, kept: int) -> None:
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(WeightsMismatch, match=r"model\.safetensors is truncated"):
        load(checkpoint)


def test_a_missing_head_counts_unless_it_is_tied(checkpoint: Path) -> None:
    change_weights(checkpoint, lambda weights: weights.pop(HEAD))
    with pytest.raises(WeightsMismatch, match=f"missing: {HEAD}"):
        load(checkpoint)
    change_config(checkpoint, tie_word_embeddings=True)
    assert np.isfinite(logits_of(checkpoint)).all()


def test_a_stored_tied_head_must_be_the_embedding(checkpoint: Path) -> None:
    change_config(checkpoint, tie_word_embeddings=True)
    with pytest.raises(WeightsMismatch, match="stored ones differ"):
        load(checkpoint)
    change_weights(checkpoint, lambda weights: weights.update({HEAD: weights[EMBEDDING].clone()}))
    stored = logits_of(checkpoint)
    change_weights(checkpoint, lambda weights: weights.pop(HEAD))
    assert np.array_equal(logits_of(checkpoint), stored)


def test_derived_buffers_of_older_checkpoints_are_no_weights(checkpoint: Path) -> None:
    before = logits_of(checkpoint)
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change_weights(checkpoint, lambda weights: weights.update({name: weights[NORM].clone() * 99}))
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
    change_config(
        checkpoint,
        architectures=["OwnForCausalLM"],
        auto_map={"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"},
    )
    with pytest.raises(ArchitectureUnsupported, match="OwnForCausalLM"):
        load(checkpoint)


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"]}, "no sliding_window"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantized"),
        (
            {
                "rope_parameters": {
                    "rope_type": "dynamic",
                    "rope_theta": 1e4,
                    "factor": 2.0,
                }
            },
            "dynamic",
        ),
    ],
)
def test_what_would_run_but_not_as_meant_is_refused(
    checkpoint: Path, entries: dict[str, object], named: str
) -> None:
    change_config(checkpoint, **entries)
    with pytest.raises(ArchitectureUnsupported, match=named):
        load(checkpoint)


@pytest.mark.parametrize(
    ("architecture", "entries", "named"),
    [
        # The library's Llama and Mistral pay no heed to these entries.
        ("LlamaForCausalLM", {"layer_types": ["sliding_attention"] * 2}, "sliding_attention"),
        ("LlamaForCausalLM", {"sliding_window": 24}, "sliding_attention"),
        ("MistralForCausalLM", {"layer_types": ["sliding_attention"] * 2}, "sliding_window"),
        ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}, "bidirectional"),
        ("Gemma3ForCausalLM", {"attn_logit_softcapping": 50.0}, "soft cap"),
        ("Gemma4ForCausalLM", {"enable_moe_block": True}, "mixture-of-experts"),
        ("Gemma4ForCausalLM", {"use_bidirectional_attention": "all"}, "bidirectional"),
        ("Qwen3_5ForCausalLM", {"layer_types": ["linear_attention"] * 3}, "no layer of attention"),
    ],
)
def test_what_a_family_means_otherwise_is_refused(
    random_checkpoint: Callable[..., Path],
    tmp_path: Path,
    architecture: str,
    entries: dict[str, object],
    named: str,
) -> None:
    path = Path(shutil.copytree(random_checkpoint(architecture), tmp_path / "model"))
    change_config(path, **entries)
    with pytest.raises(ArchitectureUnsupported, match=f"{architecture} with .*{named}"):
        load(path)


@pytest.mark.parametrize(
    "architecture",
    ["Qwen3MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration", "MixtralForCausalLM"],
)
def test_mixtures_of_experts_are_refused_by_name(checkpoint: Path, architecture: str) -> None:
    change_config(checkpoint, architectures=[architecture])
    with pytest.raises(ArchitectureUnsupported, match=f"{architecture} is not served"):
        load(checkpoint)


def test_a_kind_of_rope_of_one_kind_of_layer_counts(
    random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(random_checkpoint("Gemma3ForCausalLM"), tmp_path / "model"))
    rope = json.loads((path / "config.json").read_text())["rope_parameters"]
    rope["full_attention"] = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    change_config(path, rope_parameters=rope)
    with pytest.raises(ArchitectureUnsupported, match="RoPE of type dynamic"):
        load(path)


@pytest.mark.parametrize(
    ("architecture", "entries", "named"),
    [
        ("Qwen3ForCausalLM", {"num_key_value_heads": 3}, "heads"),
        ("Gemma4ForCausalLM", {"num_kv_shared_layers": 4}, "layer types"),
        ("Gemma4ForCausalLM", {"vocab_size_per_layer_input": 95}, "vocab_size"),
        ("Qwen3_5ForCausalLM", {"linear_num_value_heads": 3}, "linear_num_value_heads"),
        ("MistralForCausalLM", {"sliding_window": 0}, "sliding_window is 0"),
        ("LlamaForCausalLM", {"num_attention_heads": 0}, "not valid"),
        ("LlamaForCausalLM", {"hidden_act": "guessed"}, "cannot be.*guessed"),
        ("Qwen3ForCausalLM", {"pad_token_id": 500}, "cannot be"),
        ("Qwen3ForCausalLM", {"max_position_embeddings": 0}, "max_position_embeddings is 0"),
    ],
)
def test_a_config_whose_sizes_do_not_fit(
    random_checkpoint: Callable[..., Path],
    tmp_path: Path,
    architecture: str,
    entries: dict[str, object],
    named: str,
) -> None:
    path = Path(shutil.copytree(random_checkpoint(architecture), tmp_path / "model"))
    change_config(path, **entries)
    with pytest.raises(ModelUnusable, match=named):
        load(path)


def test_a_context_beyond_the_models_is_refused(checkpoint: Path) -> None:
    verifier = load(checkpoint)
    with pytest.raises(BadParameters, match=r"1025 is outside 1\.\.1024"):
        verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=1025))


def test_memory_that_the_allocator_does_not_have_is_named(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = torch.Tensor.to

    def short_of_memory(*arguments: Any, **options: Any) -> torch.Tensor:
        if options.get("copy"):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return convert(*arguments, **options)

    monkeypatch.setattr(torch.Tensor, "to", short_of_memory)
    with pytest.raises(OutOfMemory, match="does not fit"):
        load(checkpoint)


@pytest.mark.parametrize("config", ["{", "[]", '{"architectures": ["Qwen3ForCausalLM"]'])
def test_a_broken_config(checkpoint: Path, config: str) -> None:
    (checkpoint / "config.json").write_text(config)
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
    assert int(caught.value.metadata["available_bytes"]) == size
    with pytest.raises(OutOfMemory):
        load(checkpoint, available_bytes=needed // 2 - 1, dtype="bfloat16")
    load(checkpoint, available_bytes=needed // 2, dtype="bfloat16")


@pytest.mark.parametrize("options", [{"dtype": "int4"}, {"backend": "abacus"}])
def test_unknown_options_are_refused(checkpoint: Path, options: dict[str, object]) -> None:
    with pytest.raises(BadParameters):
        load(checkpoint, **options)
