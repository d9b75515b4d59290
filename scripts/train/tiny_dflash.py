"""Small random DFlash checkpoints in the hub's format, for a target model's folder."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from kakeya_fleet.engine.models.digests import tokenizer_digest, weights_digest

Shapes = dict[str, tuple[int, ...]]
VERSION_2: dict[str, object] = {
    "conv_kernel_size": 2,
    "conv_group_size": 4,
    "selector_rank": 8,
    "selector_top_k": 16,
}


def random_dflash_config(
    target_folder: Path, version: int = 1, **config: object
) -> dict[str, object]:
    """A `config.json` of a version for the target in `target_folder`; `config` overrides entries.

    Of version 2, its own entries stand in `dflash_config` and the others as in version 1.
    """
    target = json.loads((target_folder / "config.json").read_bytes())
    target = target.get("text_config", target)
    hidden_size = target["hidden_size"]
    layer_count = target["num_hidden_layers"]
    entries: dict[str, object] = {
        "architectures": ["DFlashDraftModel"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "block_size": 16,
        "dflash_config": {
            "mask_token_id": target["vocab_size"] - 1,
            "target_layer_ids": list(range(min(layer_count, 4))),
        },
        "dtype": "float32",
        "head_dim": 16,
        "hidden_act": "silu",
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "layer_types": None,
        "max_position_embeddings": target["max_position_embeddings"],
        "model_type": "qwen3",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "num_target_layers": layer_count,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 10_000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": target["vocab_size"],
    } | config
    if entries["layer_types"] is None:
        entries["layer_types"] = ["full_attention"] * _number(entries, "num_hidden_layers")
    entries["use_sliding_window"] = entries["sliding_window"] is not None
    if version == 2:
        own = {name: entries.pop(name, value) for name, value in VERSION_2.items()}
        nested = entries["dflash_config"]
        assert isinstance(nested, dict)
        entries["dflash_config"] = own | nested
        entries["architectures"] = ["DFlash2DraftModel"]
    return entries


def dflash_shapes(entries: dict[str, object]) -> Shapes:
    """Name and shape of every tensor of a checkpoint with this config."""
    hidden, inner = _number(entries, "hidden_size"), _number(entries, "intermediate_size")
    head_dim = _number(entries, "head_dim")
    queries = _number(entries, "num_attention_heads") * head_dim
    keys = _number(entries, "num_key_value_heads") * head_dim
    nested = entries.get("dflash_config")
    conditioning = nested if isinstance(nested, dict) else entries
    tapped = conditioning["target_layer_ids"]
    assert isinstance(tapped, list)
    taps = len(tapped)
    shapes: Shapes = {
        "fc.weight": (hidden, taps * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for index in range(_number(entries, "num_hidden_layers")):
        layer = f"layers.{index}."
        shapes |= {
            layer + "input_layernorm.weight": (hidden,),
            layer + "post_attention_layernorm.weight": (hidden,),
            layer + "self_attn.q_proj.weight": (queries, hidden),
            layer + "self_attn.k_proj.weight": (keys, hidden),
            layer + "self_attn.v_proj.weight": (keys, hidden),
            layer + "self_attn.o_proj.weight": (hidden, queries),
            layer + "self_attn.q_norm.weight": (head_dim,),
            layer + "self_attn.k_norm.weight": (head_dim,),
            layer + "mlp.gate_proj.weight": (inner, hidden),
            layer + "mlp.up_proj.weight": (inner, hidden),
            layer + "mlp.down_proj.weight": (hidden, inner),
        }
    if entries["architectures"] == ["DFlash2DraftModel"]:
        shapes |= _shapes_2(entries | conditioning)
    return shapes


def _shapes_2(entries: dict[str, object]) -> Shapes:
    """What version 2 has beside, of all entries side by side."""
    hidden, rank = _number(entries, "hidden_size"), _number(entries, "selector_rank")
    taps = _number(entries, "conv_kernel_size")
    groups = hidden // _number(entries, "conv_group_size")
    shapes: Shapes = {
        "candidate_selector.hidden_projection.weight": (rank, hidden),
        "candidate_selector.predecessor_codebook": (_number(entries, "vocab_size"), rank),
        "candidate_selector.successor_codebook": (_number(entries, "vocab_size"), rank),
    }
    for index in range(_number(entries, "num_hidden_layers")):
        for part in ("attention_conv", "mlp_conv"):
            name = f"layers.{index}.{part}."
            shapes[name + "base_kernel"] = (2, taps, hidden)
            shapes[name + "kernel_projection.weight"] = (2 * taps * groups, hidden)
    if entries.get("enable_confidence_head"):
        seen = hidden + (rank if entries["confidence_head_with_markov"] else 0)
        shapes |= {"confidence_head.proj.weight": (1, seen), "confidence_head.proj.bias": (1,)}
    return shapes


def random_tensors(shapes: Shapes, seed: int) -> dict[str, Tensor]:
    """Products that keep the scale of their inputs; norms around one."""
    generator = torch.Generator().manual_seed(seed)

    def tensor(shape: tuple[int, ...]) -> Tensor:
        values = torch.randn(shape, generator=generator)
        return 1.0 + 0.2 * values if len(shape) == 1 else values * 1.5 / shape[1] ** 0.5

    return {name: tensor(shape) for name, shape in shapes.items()}


def write_random_dflash(
    folder: Path,
    target_folder: Path,
    seed: int = 0,
    *,
    version: int = 1,
    manifest: bool = True,
    **config: object,
) -> Path:
    """Writes a random drafter for the target in `target_folder`; `config` overrides entries.

    `config.json`, `model.safetensors`, and with `manifest` a `training.json` that
    names the target by its folder and digests. Returns `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    entries = random_dflash_config(target_folder, version, **config)
    (folder / "config.json").write_text(json.dumps(entries, indent=2) + "\n")
    save_file(random_tensors(dflash_shapes(entries), seed), folder / "model.safetensors")
    if manifest:
        target = {
            "model_id": str(target_folder.resolve()),
            "weights_digest": weights_digest(target_folder),
            "tokenizer_digest": tokenizer_digest(target_folder),
        }
        text = json.dumps({"target": target}, indent=2)
        (folder / "training.json").write_text(text + "\n")
    return folder


def _number(entries: dict[str, object], name: str) -> int:
    value = entries[name]
    assert isinstance(value, int)
    return value
