"""Small random checkpoints in the hub's format, one recipe for each family that is served."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models
from torch import nn

VOCABULARY_SIZE = 96

TINY: dict[str, object] = {
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    # Wide enough that logits and attention are far from uniform.
    "initializer_range": 0.25,
    # No token ends a text.
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}

SLIDING_WINDOW = 24

GEMMA3: dict[str, object] = {
    # Tied, a random model repeats one token for ever.
    "tie_word_embeddings": False,
    "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "sliding_window": SLIDING_WINDOW,
    "query_pre_attn_scalar": 16,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    },
}

GEMMA4: dict[str, object] = {
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    # Layer 3 uses the keys of layer 2, layer 4 those of layer 1.
    "num_hidden_layers": 5,
    "num_kv_shared_layers": 2,
    "layer_types": [
        "sliding_attention",
        "full_attention",
        "sliding_attention",
        "sliding_attention",
        "full_attention",
    ],
    "sliding_window": SLIDING_WINDOW,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": VOCABULARY_SIZE,
    "final_logit_softcapping": 10.0,
}

GEMMA4_EXPERTS: dict[str, object] = {
    # The 26B-A4B's shape in small: no shared keys, no inputs of layers, a feed-forward layer
    # beside many experts, of which each token has eight. Its head is tied there.
    "num_hidden_layers": 3,
    "num_kv_shared_layers": 0,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "use_double_wide_mlp": False,
    "hidden_size_per_layer_input": 0,
    "enable_moe_block": True,
    "num_experts": 32,
    "top_k_experts": 8,
    "moe_intermediate_size": 16,
}
"""Besides or instead of `GEMMA4`."""

QWEN3_5: dict[str, object] = {
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [2, 1, 1],
    },
}

HEADS_SHARE: dict[str, object] = {"head_dim": None, "hidden_size": 64}
"""Heads share the hidden size: the config cannot say otherwise."""

EXPERTS: dict[str, object] = {
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
}

TEXT: dict[str, dict[str, object]] = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {"sliding_window": None},
    "Qwen2ForCausalLM": HEADS_SHARE,
    "Qwen3ForCausalLM": {},
    "Qwen3MoeForCausalLM": EXPERTS,
    "MixtralForCausalLM": HEADS_SHARE | {"sliding_window": None, "num_local_experts": 6},
    "GptOssForCausalLM": {
        "num_local_experts": 8,
        "num_experts_per_tok": 4,
        "sliding_window": SLIDING_WINDOW,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150_000.0,
            "factor": 4.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 256,
        },
    },
    "Phi3ForCausalLM": HEADS_SHARE | {"sliding_window": None},
    "Olmo2ForCausalLM": HEADS_SHARE,
    "Gemma3ForCausalLM": GEMMA3,
    "Gemma4ForCausalLM": GEMMA4,
    "Qwen3_5ForCausalLM": QWEN3_5,
}
"""What each architecture's config has besides or instead of `TINY`."""

VISION: dict[str, object] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}

WRAPPED: dict[str, tuple[str, dict[str, object]]] = {
    "Gemma3ForConditionalGeneration": (
        "Gemma3ForCausalLM",
        {"vision_config": VISION | {"image_size": 28, "patch_size": 14}, "mm_tokens_per_image": 4},
    ),
    "Gemma4ForConditionalGeneration": (
        "Gemma4ForCausalLM",
        {
            "vision_config": VISION
            | {"num_key_value_heads": 2, "head_dim": 8, "position_embedding_size": 64},
            "audio_config": {
                "hidden_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "output_proj_dims": 16,
            },
        },
    ),
    "Qwen3_5ForConditionalGeneration": (
        "Qwen3_5ForCausalLM",
        {
            "vision_config": {
                "depth": 1,
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_heads": 2,
                "out_hidden_size": 32,
                "num_position_embeddings": 16,
            }
        },
    ),
}
"""Models of several modalities: their text part, and the config of the other parts."""

GEMMA4_26B = "Gemma 4 26B-A4B"
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    GEMMA4_26B: ("Gemma4ForCausalLM", GEMMA4_EXPERTS),
}
"""Models with layers that others of their architecture do not have, by names of their own."""

FAMILIES = (*TEXT, *WRAPPED, *VARIANTS)
"""All of which there is a recipe here."""


def save_random_checkpoint(
    folder: Path, architecture: str, *, seed: int = 0, shards: bool = False, **config: object
) -> None:
    """Writes config, weights and a tokenizer of one of `FAMILIES`.

    `config` goes into the text part's config.
    """
    architecture, own_config = VARIANTS.get(architecture, (architecture, {}))
    model_class = getattr(transformers, architecture)
    text, others = WRAPPED.get(architecture, (architecture, {}))
    options = TINY | TEXT[text] | own_config | config
    if options["head_dim"] is None:
        options.pop("head_dim")
    if architecture in WRAPPED:
        of_both = ("tie_word_embeddings", "initializer_range")
        own = {key: options[key] for key in of_both if key in options}
        options = {"text_config": options, **others, **own}
    torch.manual_seed(seed)
    model = model_class(model_class.config_class(**options))
    _spread(model)
    model.save_pretrained(folder, max_shard_size="20KB" if shards else "1GB")
    vocabulary = {f"t{index}": index for index in range(VOCABULARY_SIZE)}
    Tokenizer(models.WordLevel(vocabulary, unk_token="t0")).save(str(folder / "tokenizer.json"))


@torch.no_grad()
def _spread(model: nn.Module) -> None:
    """Moves weights that start out as ones or zeros, so that a mistake in their use shows."""
    for name, parameter in model.named_parameters():
        if name.endswith("A_log"):
            # Recurrent states that remember tens of tokens.
            parameter.uniform_(-6, -1)
        elif parameter.ndim == 1:
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.uniform_(0.5, 1.5)
