"""What torch refuses by name, besides what every back end does: `test_loading_contract`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend import torch_verifier
from kakeya_fleet.engine.backends.torch_backend.compiled.decoder import CompiledDecoder
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import (
    ArchitectureUnsupported,
    ModelUnusable,
    OutOfMemory,
)
from kakeya_fleet.engine.models.model_folder import ModelFolder


def load(path: Path) -> Verifier:
    return load_verifier(ModelFolder(path, path.name))


@pytest.fixture
def checkpoint(random_checkpoint: Callable[..., Path], tmp_path: Path) -> Path:
    """A checkpoint of its own, to be damaged."""
    return Path(shutil.copytree(random_checkpoint(), tmp_path / "model"))


def change_config(path: Path, **entries: object) -> None:
    config = json.loads((path / "config.json").read_text())
    config.update(entries)
    (path / "config.json").write_text(json.dumps(config))


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


LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "original_max_position_embeddings": 256,
    "factor": 4.0,
    "short_factor": [1.0] * 8,
    "long_factor": [2.0] * 8,
}


@pytest.mark.parametrize(
    ("architecture", "entries", "named"),
    [
        # The library's Llama and Mistral pay no heed to these entries.
        ("LlamaForCausalLM", {"layer_types": ["sliding_attention"] * 2}, "sliding_attention"),
        ("LlamaForCausalLM", {"sliding_window": 24}, "sliding_attention"),
        ("MistralForCausalLM", {"layer_types": ["sliding_attention"] * 2}, "sliding_window"),
        ("Gemma3ForCausalLM", {"use_bidirectional_attention": True}, "bidirectional"),
        ("Gemma3ForCausalLM", {"attn_logit_softcapping": 50.0}, "soft cap"),
        ("Gemma4ForCausalLM", {"use_bidirectional_attention": "all"}, "bidirectional"),
        ("Phi3ForCausalLM", {"rope_parameters": LONG_ROPE}, "RoPE of type longrope"),
        ("GptOssForCausalLM", {"quantization_config": {"quant_method": "mxfp4"}}, "bfloat16"),
        (
            "Qwen3MoeForCausalLM",
            {"quantization": {"bits": 4, "group_size": 32}},
            "experts whose weights are quantized",
        ),
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


def test_other_mixtures_of_experts_are_refused_by_name(checkpoint: Path) -> None:
    for name in ("Qwen2MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration", "DbrxForCausalLM"):
        change_config(checkpoint, architectures=[name])
        with pytest.raises(ArchitectureUnsupported, match=f"{name} is not served"):
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


def test_memory_that_is_gone_when_weights_are_laid_out_is_named(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others took it since it was found free: nothing says so but the allocator."""

    def short_of_memory(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")

    monkeypatch.setattr(CompiledDecoder, "__init__", short_of_memory)
    monkeypatch.setattr(torch_verifier, "laid_out", short_of_memory)
    with pytest.raises(OutOfMemory, match="smaller --weights"):
        load(checkpoint)
