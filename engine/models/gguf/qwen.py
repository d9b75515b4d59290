"""GGUF files of Qwen2, Qwen3 and Qwen3.5."""

from __future__ import annotations

from kakeya_fleet.engine.models.gguf.decoder import (
    head_size,
    layer_count,
    products,
    shared_config,
    targets,
)
from kakeya_fleet.engine.models.gguf.described import (
    ConfigEntries,
    Described,
    GroupsTogether,
    Target,
)
from kakeya_fleet.engine.models.gguf.entries import Entries
from kakeya_fleet.engine.models.gguf.llama import plain_rope

NORMS = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
}
HEAD_NORMS = {
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
}


def describe_qwen2(entries: Entries) -> Described:
    """A Qwen2. Raises `GgufInvalid`, `ArchitectureUnsupported`."""
    return _describe_dense(entries, "Qwen2ForCausalLM", "qwen2", {}, NORMS)


def describe_qwen3(entries: Entries) -> Described:
    """A Qwen3. Raises `GgufInvalid`, `ArchitectureUnsupported`."""
    config: ConfigEntries = {"head_dim": head_size(entries), "attention_bias": False}
    return _describe_dense(entries, "Qwen3ForCausalLM", "qwen3", config, NORMS | HEAD_NORMS)


def _describe_dense(
    entries: Entries, name: str, model_type: str, own: ConfigEntries, norms: dict[str, str]
) -> Described:
    layers = layer_count(entries)
    heads = entries.whole(".attention.head_count")
    config: ConfigEntries = {
        **shared_config(entries, layers),
        "architectures": [name],
        "model_type": model_type,
        "hidden_act": "silu",
        "use_sliding_window": False,
        "intermediate_size": entries.whole(".feed_forward_length"),
        "num_key_value_heads": entries.whole(".attention.head_count_kv", heads),
        "rope_parameters": plain_rope(entries, entries.number(".rope.freq_base", 10_000.0)),
        **own,
    }
    leaves = products() | {leaf: Target(hub) for leaf, hub in norms.items()}
    return Described(config, targets(layers, leaves))


def describe_qwen3_5(entries: Entries) -> Described:
    """The text part of a Qwen3.5. Raises `GgufInvalid`, `ArchitectureUnsupported`."""
    drafting = entries.whole(".nextn_predict_layers", 0, least=0)
    blocks = layer_count(entries)
    layers = blocks - drafting
    interval = entries.whole(".full_attention_interval", 4)
    size = head_size(entries)
    key_heads = entries.whole(".ssm.group_count")
    value_heads = entries.whole(".ssm.time_step_rank")
    key_size = entries.whole(".ssm.state_size")
    value_size = max(entries.whole(".ssm.inner_size") // value_heads, 1)
    sections = entries.numbers(".rope.dimension_sections")
    config: ConfigEntries = {
        **shared_config(entries, layers),
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "hidden_act": "silu",
        "intermediate_size": entries.whole(".feed_forward_length"),
        "num_key_value_heads": entries.whole(".attention.head_count_kv"),
        "head_dim": size,
        "layer_types": [
            "linear_attention" if (index + 1) % interval else "full_attention"
            for index in range(layers)
        ],
        "linear_conv_kernel_dim": entries.whole(".ssm.conv_kernel"),
        "linear_key_head_dim": key_size,
        "linear_num_key_heads": key_heads,
        "linear_value_head_dim": value_size,
        "linear_num_value_heads": value_heads,
        "rope_parameters": {
            **plain_rope(entries, entries.number(".rope.freq_base")),
            "mrope_section": [int(each) for each in sections if each],
            "mrope_interleaved": True,
            "partial_rotary_factor": entries.whole(".rope.dimension_count") / size,
        },
    }
    together = (key_heads, max(value_heads // key_heads, 1))
    leaves = _recurrent_leaves(together, value_size, 2 * key_size * key_heads)
    found = targets(layers, products() | leaves, "less_one")
    # A draft model of its own, behind the layers; the engine runs none of it.
    unused = frozenset(
        name
        for name in entries.header.tensors
        if any(name.startswith(f"blk.{index}.") for index in range(layers, blocks))
    )
    return Described(config, found, unused)


def _recurrent_leaves(
    together: tuple[int, int], size: int, query_key_rows: int
) -> dict[str, Target]:
    """Norms, and the layers of linear attention: value heads are grouped by their key heads."""
    mixed = "linear_attn"
    a_head, a_value = GroupsTogether(*together, 1), GroupsTogether(*together, size)
    behind = GroupsTogether(*together, size, first=query_key_rows)
    columns = GroupsTogether(*together, size, of_columns=True)
    norms = {
        "attn_norm.weight": "input_layernorm.weight",
        "post_attention_norm.weight": "post_attention_layernorm.weight",
    } | HEAD_NORMS
    return {leaf: Target(hub, "less_one") for leaf, hub in norms.items()} | {
        "ssm_norm.weight": Target(f"{mixed}.norm.weight"),
        "ssm_a": Target(f"{mixed}.A_log", "log_of_negated", a_head),
        "ssm_dt.bias": Target(f"{mixed}.dt_bias", order=a_head),
        "ssm_alpha.weight": Target(f"{mixed}.in_proj_a.weight", order=a_head),
        "ssm_beta.weight": Target(f"{mixed}.in_proj_b.weight", order=a_head),
        "attn_gate.weight": Target(f"{mixed}.in_proj_z.weight", order=a_value),
        "attn_qkv.weight": Target(f"{mixed}.in_proj_qkv.weight", order=behind),
        "ssm_conv1d.weight": Target(f"{mixed}.conv1d.weight", order=behind, new_axis=1),
        "ssm_out.weight": Target(f"{mixed}.out_proj.weight", order=columns),
    }
