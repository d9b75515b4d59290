"""What MLX refuses by name, besides what every back end does: `test_loading_contract`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelUnusable
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support.forwards import logits_of

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")

WIDE = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)


def load(path: Path, dtype: str = "float32") -> Verifier:
    return load_verifier(ModelFolder(path, path.name), backend="mlx", dtype=dtype)


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
    change_config(checkpoint, model_file="modeling_own.py")
    verifier = load(checkpoint)
    logits = logits_of(verifier, verifier.allocate(WIDE), [5, 4, 3])
    assert np.isfinite(logits).all()


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
    "scaled RoPE beside experts": (
        "Qwen3MoeForCausalLM",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
        "scaled RoPE",
    ),
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
