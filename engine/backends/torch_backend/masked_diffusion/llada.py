"""LLaDA checkpoints (Nie et al., 2025) as Llama's layers: entries and tensors by their names.

The layers are Llama's (`block_type` "llama"): root-mean-square norms, rotary
embedding by halves, `silu(ff_proj x) * up_proj x` and no biases; names are those
of OLMo. What a config may ask for beyond that is refused by name.
"""

from __future__ import annotations

from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.blueprint import (
    Entries,
    StoredNames,
    positive,
)
from kakeya_fleet.engine.errors import ArchitectureUnsupported

_BLOCK = r"^model\.transformer\.blocks\.(\d+)\."
_LAYER = r"model.layers.\1."

LLADA_NAMES = StoredNames(
    renamed=(
        (r"^model\.transformer\.wte\.", "model.embed_tokens."),
        (r"^model\.transformer\.ln_f\.", "model.norm."),
        (r"^model\.transformer\.ff_out\.", "lm_head."),
        (_BLOCK + r"attn_norm\.", _LAYER + "input_layernorm."),
        (_BLOCK + r"ff_norm\.", _LAYER + "post_attention_layernorm."),
        (_BLOCK + r"([qkv])_proj\.", _LAYER + r"self_attn.\2_proj."),
        (_BLOCK + r"attn_out\.", _LAYER + "self_attn.o_proj."),
        (_BLOCK + r"ff_proj\.", _LAYER + "mlp.gate_proj."),
        (_BLOCK + r"up_proj\.", _LAYER + "mlp.up_proj."),
        (_BLOCK + r"ff_out\.", _LAYER + "mlp.down_proj."),
    )
)

REQUIRED: dict[str, tuple[object, ...]] = {
    "block_type": ("llama",),
    "block_group_size": (1, None),
    "activation_type": ("silu",),
    "layer_norm_type": ("rms",),
    "layer_norm_with_affine": (True,),
    "bias_for_layer_norm": (False, None),
    "attention_layer_norm": (False, None),
    "input_emb_norm": (False, None),
    "include_bias": (False,),
    "include_qkv_bias": (False, None),
    "rope": (True,),
    "alibi": (False, None),
    "scale_logits": (False, None),
    "clip_qkv": (None,),
}
"""Entries and the values with which the layers are Llama's; absent counts as None."""


def llama_entries(entries: Entries) -> Entries:
    """A LLaDA config's entries under Llama's names.

    Raises `ArchitectureUnsupported` for layers that are not Llama's, `ValueError`
    for sizes that are missing.
    """
    for name, values in REQUIRED.items():
        if entries.get(name) not in values:
            raise ArchitectureUnsupported(
                f"LLaDAModelLM with {name} {entries.get(name)!r} is not served; "
                f"served is {values[0]!r}",
                architecture="LLaDAModelLM",
                **{name: str(entries.get(name))},
            )
    width, heads = positive(entries, "d_model"), positive(entries, "n_heads")
    # Attention with one key head for all is spelled in its own entry.
    shared = 1 if entries.get("multi_query_attention") else heads
    whole = entries.get("mlp_hidden_size") is None
    rows = "vocab_size" if entries.get("embedding_size") is None else "embedding_size"
    return {
        "architectures": entries.get("architectures"),
        "vocab_size": positive(entries, rows),
        "hidden_size": width,
        "intermediate_size": (
            positive(entries, "mlp_ratio") * width
            if whole
            else positive(entries, "mlp_hidden_size")
        ),
        "num_hidden_layers": positive(entries, "n_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": (
            shared if entries.get("n_kv_heads") is None else positive(entries, "n_kv_heads")
        ),
        "max_position_embeddings": positive(entries, "max_sequence_length"),
        "rms_norm_eps": entries.get("rms_norm_eps", 1e-5),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": entries.get("rope_theta", 10_000.0),
        },
        "tie_word_embeddings": bool(entries.get("weight_tying", False)),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
