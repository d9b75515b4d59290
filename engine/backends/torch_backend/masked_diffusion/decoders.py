"""Decoder architectures whose attention was made bidirectional for masked diffusion.

Their layers are the library's own Llama, Qwen2 and Qwen3 code with
`is_causal = False`, for which the library builds bidirectional masks. A config
declares it by `model_type`: `Dream` (Ye et al., "Dream 7B", 2025: the layers of
Qwen2, predictions shifted by one), `llada` (Nie et al., "Large Language Diffusion
Models", 2025), `a2d-*` (adapted from a causal model), or by `"is_causal": false`
beside an ordinary one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import transformers

from kakeya_fleet.engine.backends.families import SLIDING
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.blueprint import (
    AS_STORED,
    Blueprint,
    Entries,
    StoredNames,
    named_architecture,
    positive,
)
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.llada import (
    LLADA_NAMES,
    llama_entries,
)
from kakeya_fleet.engine.errors import ArchitectureUnsupported


@dataclass(frozen=True, slots=True)
class _Family:
    """How a `model_type` is computed, the names its checkpoints go by, and its shift."""

    model_class: type[transformers.PreTrainedModel]
    architectures: tuple[str, ...]
    shift: int = 0
    names: StoredNames = AS_STORED


_LLAMA = transformers.LlamaForCausalLM
_QWEN2 = transformers.Qwen2ForCausalLM
_QWEN3 = transformers.Qwen3ForCausalLM

BIDIRECTIONAL: Mapping[str, _Family] = {
    "Dream": _Family(_QWEN2, ("DreamModel", "DreamForCausalLM"), shift=1),
    "llada": _Family(_LLAMA, ("LLaDAModelLM",), names=LLADA_NAMES),
    "a2d-llama": _Family(_LLAMA, ("A2DLlamaLMHeadModel",)),
    "a2d-qwen2": _Family(_QWEN2, ("A2DQwen2LMHeadModel",)),
    "a2d-qwen3": _Family(_QWEN3, ("A2DQwen3LMHeadModel",)),
}
"""By `model_type`: bidirectional by its name alone."""

DECLARED: Mapping[str, _Family] = {
    "llama": _Family(_LLAMA, ("LlamaForCausalLM",)),
    "qwen2": _Family(_QWEN2, ("Qwen2ForCausalLM",)),
    "qwen3": _Family(_QWEN3, ("Qwen3ForCausalLM",)),
}
"""By `model_type`: bidirectional when the config says `"is_causal": false`."""


def decoder_blueprint(entries: Entries) -> Blueprint | None:
    """The model of a decoder's config; None if its `model_type` is no decoder's.

    Raises `ArchitectureUnsupported` for a causal one and for layers that are not
    served, `ValueError` and the library's errors for entries that cannot be.
    """
    model_type = str(entries.get("model_type"))
    family = BIDIRECTIONAL.get(model_type) or DECLARED.get(model_type)
    if family is None:
        return None
    name = named_architecture(entries)
    if name not in family.architectures:
        raise ArchitectureUnsupported(
            f"model_type {model_type} with the architecture {name or 'unnamed'} is not served; "
            f"served is {', '.join(family.architectures)}",
            architecture=name,
        )
    if entries.get("is_causal", model_type in DECLARED) is not False:
        raise ArchitectureUnsupported(
            f"{name} is causal, no masked diffusion model: one that was trained with "
            'bidirectional attention says "is_causal": false in its config.json',
            architecture=name,
        )
    config = _config(family, llama_entries(entries) if model_type == "llada" else entries)
    if SLIDING in (getattr(config, "layer_types", None) or ()):
        raise ArchitectureUnsupported(
            f"{name} with sliding attention is not served as a masked diffusion model",
            architecture=name,
        )
    return Blueprint(
        architecture=name,
        model_class=family.model_class,
        config=config,
        names=family.names,
        vocabulary_size=config.vocab_size,
        context_length=config.max_position_embeddings,
        usual_shift=family.shift,
        keeps_keys=True,
    )


def _config(family: _Family, entries: Entries) -> transformers.PretrainedConfig:
    """The library's config of the family's class, bidirectional."""
    config_class = family.model_class.config_class
    for name in ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size"):
        positive(entries, name)
    positive(entries, "max_position_embeddings")
    own = {name: value for name, value in entries.items() if name not in ("auto_map", "model_type")}
    config = config_class.from_dict({**own, "model_type": config_class.model_type})
    if config.num_attention_heads % config.num_key_value_heads:
        raise ValueError(
            f"{config.num_attention_heads} heads share {config.num_key_value_heads} keys"
        )
    config.is_causal = False
    config.use_cache = False
    return config
