"""What the GGUF files of all dense decoders have in common."""

from __future__ import annotations

from collections.abc import Mapping

from kakeya_fleet.engine.errors import GgufInvalid
from kakeya_fleet.engine.models.gguf.described import ConfigEntries, Target
from kakeya_fleet.engine.models.gguf.entries import Entries

MOST_LAYERS = 1024
EMBEDDING = "token_embd.weight"
HEAD = "output.weight"
ROPE_FREQUENCIES = "rope_freqs.weight"

PRODUCTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Linear layers, with weights and maybe biases."""


def layer_count(entries: Entries) -> int:
    """How many layers the file says and has tensors of. Raises `GgufInvalid` if they differ."""
    said = entries.whole(".block_count", most=MOST_LAYERS)
    there = {name.split(".")[1] for name in entries.header.tensors if name.startswith("blk.")}
    if there != {str(index) for index in range(said)}:
        path = entries.header.path
        raise GgufInvalid(
            f"{path} says that it has {said} layers, and has tensors of {len(there)}",
            path=str(path),
        )
    return said


def shared_config(entries: Entries, layers: int) -> ConfigEntries:
    """The entries of `config.json` that all families have."""
    tensors = entries.header.tensors
    if EMBEDDING not in tensors:
        path = entries.header.path
        raise GgufInvalid(f"{path} has no {EMBEDDING}: it is no language model", path=str(path))
    return {
        "vocab_size": tensors[EMBEDDING].shape[0],
        "hidden_size": entries.whole(".embedding_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": entries.whole(".attention.head_count"),
        "max_position_embeddings": entries.whole(".context_length"),
        "rms_norm_eps": entries.number(".attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": HEAD not in tensors,
        **special_ids(entries),
    }


def special_ids(entries: Entries) -> ConfigEntries:
    """Ids of the special tokens that the file names; None for those that it does not."""
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    found: ConfigEntries = {}
    for entry, name in names.items():
        key = f"tokenizer.ggml.{name}_token_id"
        found[entry] = entries.whole(key, least=0) if key in entries else None
    return found


def head_size(entries: Entries) -> int:
    """Values of one head of keys."""
    width, heads = entries.whole(".embedding_length"), entries.whole(".attention.head_count")
    return entries.whole(".attention.key_length", max(width // heads, 1))


def targets(
    layers: int, leaves: Mapping[str, Target], norms: str = "as_they_are"
) -> dict[str, Target]:
    """The targets of a decoder: its embedding, head and last norm, and the `leaves` of each layer.

    `leaves` are by the file's names within a layer, with `.weight` or `.bias`; a target's name
    is that within the hub's layer.
    """
    found = {
        EMBEDDING: Target("model.embed_tokens.weight"),
        HEAD: Target("lm_head.weight"),
        "output_norm.weight": Target("model.norm.weight", norms),  # type: ignore[arg-type]
    }
    for index in range(layers):
        for leaf, target in leaves.items():
            name = f"model.layers.{index}.{target.name}"
            found[f"blk.{index}.{leaf}"] = Target(
                name, target.values, target.order, target.new_axis
            )
    return found


def products() -> dict[str, Target]:
    """The linear layers of one layer."""
    return {
        f"{leaf}.{part}": Target(f"{name}.{part}")
        for leaf, name in PRODUCTS.items()
        for part in ("weight", "bias")
    }
