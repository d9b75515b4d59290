"""Llama's GGUF files, and Mistral's, which llama.cpp calls by the same name."""

from __future__ import annotations

import math

from kakeya_fleet.engine.errors import ArchitectureUnsupported
from kakeya_fleet.engine.models.gguf.decoder import (
    ROPE_FREQUENCIES,
    head_size,
    layer_count,
    products,
    shared_config,
    targets,
)
from kakeya_fleet.engine.models.gguf.described import (
    ConfigEntries,
    Described,
    HalvesApart,
    Target,
)
from kakeya_fleet.engine.models.gguf.entries import Entries

LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_POSITIONS = 1.0, 4.0, 8192
"""Of all models with RoPE of type llama3; the files have what comes of them."""
FREQUENCY_ERROR = 1e-5
"""Relative: of float32 computed in another order."""


def describe_llama(entries: Entries) -> Described:
    """A Llama or a Mistral without a window. Raises `GgufInvalid`, `ArchitectureUnsupported`."""
    layers = layer_count(entries)
    heads = entries.whole(".attention.head_count")
    kv_heads = entries.whole(".attention.head_count_kv", heads)
    config: ConfigEntries = {
        **shared_config(entries, layers),
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "intermediate_size": entries.whole(".feed_forward_length"),
        "num_key_value_heads": kv_heads,
        "head_dim": head_size(entries),
        "attention_bias": "blk.0.attn_q.bias" in entries.header.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in entries.header.tensors,
        "rope_parameters": _rope(entries),
    }
    leaves = {
        **products(),
        "attn_norm.weight": Target("input_layernorm.weight"),
        "ffn_norm.weight": Target("post_attention_layernorm.weight"),
    }
    for leaf, name, count in (("attn_q", "q_proj", heads), ("attn_k", "k_proj", kv_heads)):
        for part in ("weight", "bias"):
            leaves[f"{leaf}.{part}"] = Target(f"self_attn.{name}.{part}", order=HalvesApart(count))
    return Described(config, targets(layers, leaves), frozenset({ROPE_FREQUENCIES}))


def _rope(entries: Entries) -> ConfigEntries:
    theta = entries.number(".rope.freq_base", 10_000.0)
    divisors = entries.floats(ROPE_FREQUENCIES)
    if divisors is not None:
        return _llama3(entries, theta, divisors)
    return plain_rope(entries, theta)


def plain_rope(entries: Entries, theta: float) -> ConfigEntries:
    """RoPE as it is or scaled evenly. Raises `ArchitectureUnsupported` for other scalings."""
    kind = entries.text(".rope.scaling.type", "none")
    if kind == "linear":
        factor = entries.number(".rope.scaling.factor")
        return {"rope_type": "linear", "rope_theta": theta, "factor": factor}
    if kind != "none":
        raise ArchitectureUnsupported(
            f"{entries.header.path} scales RoPE by {kind[:64]}, which is not read from GGUF;"
            " serve the model's folder in the hub's format",
            architecture=entries.architecture,
            rope_type=kind[:64],
        )
    return {"rope_type": "default", "rope_theta": theta}


def _llama3(entries: Entries, theta: float, divisors: list[float]) -> ConfigEntries:
    """The parameters that give these divisors of the frequencies: the factor is the largest."""
    factor = max(divisors)
    expected = llama3_divisors(theta, head_size(entries), factor)
    same = len(divisors) == len(expected) and all(
        math.isclose(one, other, rel_tol=FREQUENCY_ERROR)
        for one, other in zip(divisors, expected, strict=True)
    )
    if not same:
        raise ArchitectureUnsupported(
            f"{entries.header.path} divides the frequencies of RoPE as no Llama 3 does; serve"
            " the model's folder in the hub's format",
            architecture=entries.architecture,
            rope_type="llama3",
        )
    return {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": factor,
        "low_freq_factor": LLAMA3_LOW,
        "high_freq_factor": LLAMA3_HIGH,
        "original_max_position_embeddings": LLAMA3_POSITIONS,
    }


def llama3_divisors(theta: float, size: int, factor: float) -> list[float]:
    """What the frequencies of heads of `size` values are divided by, as llama.cpp stores it.

    1 where the wavelength is below 8192 / 4, `factor` where it is above 8192, and between
    1 / ((1 - s) / factor + s) with s from 1 down to 0.
    """
    found = []
    for index in range(0, size, 2):
        wavelength = 2 * math.pi * theta ** (index / size)
        turns = LLAMA3_POSITIONS / wavelength
        share = (turns - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW)
        share = min(max(share, 0.0), 1.0)
        found.append(1 / ((1 - share) / factor + share))
    return found
