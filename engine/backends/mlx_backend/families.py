"""mlx-lm's code of each family, and the names that its conversion gives to weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from kakeya_fleet.engine.backends import families
from kakeya_fleet.engine.backends.families import WITHIN_MODEL, Family

CONVERTED = (
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
)
"""Where mlx-lm's conversion keeps the text part."""

OTHER_PARTS = {
    "Gemma4ForConditionalGeneration": (
        "vision_tower.",
        "embed_vision.",
        "audio_tower.",
        "embed_audio.",
    ),
    "Qwen3_5ForConditionalGeneration": ("vision_tower.",),
}
"""Where it keeps what is no text."""


@dataclass(frozen=True, slots=True)
class LibraryCode:
    """mlx-lm's `module` of a text model, and its classes `model` and `arguments`.

    `attention` is the module whose attention layers it uses, `activation` what its
    feed-forward layers compute with.
    """

    module: str
    attention: str
    model: str = "Model"
    arguments: str = "ModelArgs"
    activation: str = "silu"


def _plain(module: str, activation: str = "silu") -> LibraryCode:
    return LibraryCode(module, module, activation=activation)


LIBRARY_CODE: Mapping[str, LibraryCode] = MappingProxyType(
    {
        "LlamaForCausalLM": _plain("llama"),
        "MistralForCausalLM": _plain("llama"),
        "Qwen2ForCausalLM": _plain("qwen2"),
        "Qwen3ForCausalLM": _plain("qwen3"),
        "Qwen3MoeForCausalLM": _plain("qwen3_moe"),
        "MixtralForCausalLM": _plain("mixtral"),
        "Phi3ForCausalLM": _plain("phi3"),
        "Olmo2ForCausalLM": _plain("olmo2"),
        "Gemma3ForCausalLM": _plain("gemma3_text", "gelu_pytorch_tanh"),
        "Gemma4ForCausalLM": _plain("gemma4_text", "gelu_pytorch_tanh"),
        "Qwen3_5ForCausalLM": LibraryCode(
            "qwen3_5", "qwen3_next", model="TextModel", arguments="TextModelArgs"
        ),
    }
)
"""By the family's `text_model`."""


def _with_conversions(family: Family) -> Family:
    """`family` with the names of mlx-lm's conversion beside the hub's."""
    if family.text_model == "MixtralForCausalLM":
        # Its code has the hub's name of the layer, and its own of an expert's weights.
        own = tuple(pair for pair in family.renamed_parts if pair[0].endswith(".weight"))
        return replace(family, renamed_parts=own)
    if not family.renamed and family.text_model != "Qwen3_5ForCausalLM":
        return family
    return replace(
        family,
        renamed=(WITHIN_MODEL, *CONVERTED),
        left_out=(*family.left_out, *OTHER_PARTS.get(family.name, ())),
    )


FAMILIES = {
    name: _with_conversions(family)
    for name, family in families.FAMILIES.items()
    if family.text_model in LIBRARY_CODE
}
"""By the name in `architectures`."""
