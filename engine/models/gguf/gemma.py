"""GGUF files of the text parts of Gemma 3 and Gemma 4."""

from __future__ import annotations

from kakeya_fleet.engine.models.gguf.decoder import (
    ROPE_FREQUENCIES,
    head_size,
    layer_count,
    products,
    shared_config,
    targets,
)
from kakeya_fleet.engine.models.gguf.described import ConfigEntries, Described, Target
from kakeya_fleet.engine.models.gguf.entries import Entries
from kakeya_fleet.engine.models.gguf.llama import plain_rope

FULL, SLIDING = "full_attention", "sliding_attention"
GEMMA3_PERIOD = 6
"""Every so many layers one sees all positions, where the file does not say."""
LAYERS_OF_27B = 62
"""llama.cpp tells the largest Gemma 3 by them: its scores are scaled by the width of a head."""
UNROTATED = 1e29
"""What divides the frequencies of values that RoPE leaves as they are is larger."""

NORMS = {
    "attn_norm.weight": "input_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
}


def describe_gemma3(entries: Entries) -> Described:
    """A Gemma 3. Raises `GgufInvalid`, `ArchitectureUnsupported`."""
    layers = layer_count(entries)
    heads, size = entries.whole(".attention.head_count"), head_size(entries)
    scaled_by = entries.whole(".embedding_length") // heads if layers == LAYERS_OF_27B else size
    config: ConfigEntries = {
        **shared_config(entries, layers),
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "intermediate_size": entries.whole(".feed_forward_length"),
        "num_key_value_heads": entries.whole(".attention.head_count_kv", heads),
        "head_dim": size,
        "query_pre_attn_scalar": scaled_by,
        "sliding_window": entries.whole(".attention.sliding_window"),
        "layer_types": _layer_types(entries, layers),
        "rope_parameters": {
            SLIDING: {
                "rope_type": "default",
                "rope_theta": entries.number(".rope.freq_base_swa", 10_000.0),
            },
            FULL: plain_rope(entries, entries.number(".rope.freq_base", 1e6)),
        },
        **_softcap(entries),
    }
    leaves = products() | {leaf: Target(hub, "less_one") for leaf, hub in NORMS.items()}
    return Described(config, targets(layers, leaves, "less_one"))


def describe_gemma4(entries: Entries) -> Described:
    """A Gemma 4 without experts. Raises `GgufInvalid`, `ArchitectureUnsupported`."""
    layers = layer_count(entries)
    kinds = _layer_types(entries, layers)
    widths = entries.wholes(".feed_forward_length", layers)
    kv_heads = dict(zip(kinds, entries.wholes(".attention.head_count_kv", layers), strict=True))
    size = head_size(entries)
    tensors = entries.header.tensors
    inputs = entries.whole(".embedding_length_per_layer_input", 0, least=0)
    shared = entries.whole(".attention.shared_kv_layers", 0, least=0, most=layers)
    own_full = [i for i in range(layers - shared) if kinds[i] == FULL]
    config: ConfigEntries = {
        **shared_config(entries, layers),
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "intermediate_size": widths[0],
        "use_double_wide_mlp": widths[-1] == 2 * widths[0],
        "num_key_value_heads": kv_heads.get(SLIDING, kv_heads[kinds[0]]),
        "num_global_key_value_heads": kv_heads.get(FULL),
        "num_kv_shared_layers": shared,
        "attention_k_eq_v": any(f"blk.{i}.attn_v.weight" not in tensors for i in own_full),
        "global_head_dim": size,
        "head_dim": entries.whole(".attention.key_length_swa", size),
        "sliding_window": entries.whole(".attention.sliding_window"),
        "layer_types": kinds,
        "hidden_size_per_layer_input": inputs,
        "vocab_size_per_layer_input": tensors["token_embd.weight"].shape[0],
        "rope_parameters": _gemma4_rope(entries),
        **_softcap(entries),
    }
    leaves = products() | {leaf: Target(hub) for leaf, hub in NORMS.items()}
    leaves |= {
        "layer_output_scale.weight": Target("layer_scalar"),
        "inp_gate.weight": Target("per_layer_input_gate.weight"),
        "proj.weight": Target("per_layer_projection.weight"),
        "post_norm.weight": Target("post_per_layer_input_norm.weight"),
    }
    found = targets(layers, leaves) | {
        "per_layer_token_embd.weight": Target("model.embed_tokens_per_layer.weight"),
        "per_layer_model_proj.weight": Target("model.per_layer_model_projection.weight"),
        "per_layer_proj_norm.weight": Target("model.per_layer_projection_norm.weight"),
    }
    return Described(config, found, frozenset({ROPE_FREQUENCIES}))


def _layer_types(entries: Entries, layers: int) -> list[str]:
    """The kind of each layer: said for each, or every so many are full."""
    key = ".attention.sliding_window_pattern"
    if isinstance(entries.header.metadata.get(f"{entries.architecture}{key}"), list):
        return [SLIDING if slides else FULL for slides in entries.flags(key, layers) or ()]
    period = entries.whole(key, GEMMA3_PERIOD)
    return [FULL if (index + 1) % period == 0 else SLIDING for index in range(layers)]


def _gemma4_rope(entries: Entries) -> ConfigEntries:
    """A part of each full layer's head is rotated: the file has what the others are divided by."""
    divisors = entries.floats(ROPE_FREQUENCIES) or [1.0]
    rotated = sum(each < UNROTATED for each in divisors) / len(divisors)
    return {
        SLIDING: {
            "rope_type": "default",
            "rope_theta": entries.number(".rope.freq_base_swa", 10_000.0),
        },
        FULL: {
            "rope_type": "proportional",
            "rope_theta": entries.number(".rope.freq_base", 1e6),
            "partial_rotary_factor": rotated,
        },
    }


def _softcap(entries: Entries) -> ConfigEntries:
    key = ".final_logit_softcapping"
    return {"final_logit_softcapping": entries.number(key) if key in entries else None}
