"""Small random masked models in the hub's format, as their families publish them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

VOCABULARY_SIZE = 96
MASK = 95
WEIGHTS = "model.safetensors"

ENCODER: dict[str, object] = {
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 80,
    "initializer_range": 0.25,
    "pad_token_id": 1,
    "bos_token_id": None,
    "eos_token_id": None,
}
DECODER: dict[str, object] = {
    **ENCODER,
    "num_key_value_heads": 2,
    "pad_token_id": None,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
    "tie_word_embeddings": False,
}

ENCODERS: dict[str, dict[str, object]] = {
    "AlbertForMaskedLM": {"embedding_size": 16},
    "BertForMaskedLM": {},
    "DistilBertForMaskedLM": {},
    "ElectraForMaskedLM": {"embedding_size": 16},
    "ModernBertForMaskedLM": {
        "local_attention": 16,
        "global_attn_every_n_layers": 2,
        "cls_token_id": 2,
        "sep_token_id": 3,
    },
    "RobertaForMaskedLM": {},
}
"""What each one's config has besides `ENCODER`."""

DECODERS: dict[str, tuple[str, dict[str, object]]] = {
    "A2DQwen3LMHeadModel": ("Qwen3ForCausalLM", {"model_type": "a2d-qwen3"}),
    "DreamModel": (
        "Qwen2ForCausalLM",
        {
            "model_type": "Dream",
            # As published: the old spelling of the rotary base.
            "rope_parameters": None,
            "rope_scaling": None,
            "rope_theta": 5000.0,
            "auto_map": {
                "AutoConfig": "configuration_dream.DreamConfig",
                "AutoModel": "modeling_dream.DreamModel",
            },
        },
    ),
    "LlamaForCausalLM": ("LlamaForCausalLM", {"is_causal": False}),
    "Qwen2ForCausalLM": ("Qwen2ForCausalLM", {"is_causal": False}),
    "Qwen3ForCausalLM": ("Qwen3ForCausalLM", {"is_causal": False}),
}
"""By the architecture named: the library's class of the layers, what the config says besides."""

LLADA: dict[str, object] = {
    "architectures": ["LLaDAModelLM"],
    "model_type": "llada",
    "activation_type": "silu",
    "alibi": False,
    "attention_layer_norm": False,
    "attention_layer_norm_with_affine": True,
    "bias_for_layer_norm": False,
    "block_group_size": 1,
    "block_type": "llama",
    "d_model": 32,
    "embedding_size": VOCABULARY_SIZE,
    "flash_attention": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "mask_token_id": MASK,
    "max_sequence_length": 80,
    "mlp_hidden_size": 48,
    "mlp_ratio": 4,
    "multi_query_attention": None,
    "n_heads": 4,
    "n_kv_heads": 2,
    "n_layers": 2,
    "rms_norm_eps": 1e-5,
    "rope": True,
    "rope_full_precision": True,
    "rope_theta": 5000.0,
    "scale_logits": False,
    "vocab_size": VOCABULARY_SIZE,
    "weight_tying": False,
}
"""A LLaDA config with its published entries."""


def save_masked_checkpoint(
    folder: Path, architecture: str, *, seed: int = 0, **entries: object
) -> Path:
    """Writes config, weights and a tokenizer of the ids; `entries` replace the config's.

    An entry of None is left out. Entries that change shapes must be the library's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    if architecture == "LLaDAModelLM":
        save_file(llada_weights(), folder / WEIGHTS)
        config: dict[str, object] = dict(LLADA)
    else:
        class_name, own = DECODERS.get(architecture, (architecture, {}))
        base = DECODER if architecture in DECODERS else ENCODER | ENCODERS[architecture]
        model_class = getattr(transformers, class_name)
        known = {name: value for name, value in entries.items() if name in base}
        model = model_class(model_class.config_class(**(base | known)))
        spread(model)
        model.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config |= {"architectures": [architecture], "mask_token_id": MASK, **own}
    config |= entries
    write_config(folder, config)
    vocabulary = {f"t{index}": index for index in range(VOCABULARY_SIZE)}
    Tokenizer(models.WordLevel(vocabulary, unk_token="t0")).save(str(folder / "tokenizer.json"))
    return folder


def write_config(folder: Path, entries: Mapping[str, object]) -> None:
    """Writes `config.json`, without the entries that are None."""
    kept = {name: value for name, value in entries.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept), encoding="utf-8")


def rewrite_weights(folder: Path, changed: Mapping[str, torch.Tensor | None]) -> None:
    """Adds, replaces or, by None, removes tensors of the checkpoint in `folder`."""
    weights = load_file(folder / WEIGHTS) | dict(changed)
    kept = {name: tensor for name, tensor in weights.items() if tensor is not None}
    save_file(kept, folder / WEIGHTS, metadata={"format": "pt"})


@torch.no_grad()
def spread(model: torch.nn.Module) -> None:
    """Moves weights that start out as ones or zeros, so that a mistake in their use shows."""
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.add_(torch.randn_like(parameter), alpha=0.2)


def llada_weights() -> dict[str, torch.Tensor]:
    """Random tensors by the names that LLaDA's checkpoints have."""
    hidden, inner, half = 32, 48, 16
    weights = {
        "model.transformer.wte.weight": torch.randn(VOCABULARY_SIZE, hidden) * 0.5,
        "model.transformer.ln_f.weight": 1 + torch.randn(hidden) * 0.2,
        "model.transformer.ff_out.weight": torch.randn(VOCABULARY_SIZE, hidden) * 0.25,
    }
    shapes = {
        "attn_norm": (hidden,),
        "ff_norm": (hidden,),
        "q_proj": (hidden, hidden),
        "k_proj": (half, hidden),
        "v_proj": (half, hidden),
        "attn_out": (hidden, hidden),
        "ff_proj": (inner, hidden),
        "up_proj": (inner, hidden),
        "ff_out": (hidden, inner),
    }
    for block in range(2):
        for name, shape in shapes.items():
            values = torch.randn(shape) * 0.25
            if len(shape) == 1:
                values = 1 + values
            weights[f"model.transformer.blocks.{block}.{name}.weight"] = values
    return weights
