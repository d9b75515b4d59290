"""The model families served here: their names, mlx-lm's code, and how weights are stored."""

from __future__ import annotations

from dataclasses import dataclass

FULL = "full_attention"
SLIDING = "sliding_attention"
RECURRENT = "linear_attention"

WITHIN_MODEL = ("model.language_model.", "model.")
"""Where a model of several modalities keeps its text part in the hub's format."""
CONVERTED = (
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
)
"""Where it is kept by mlx-lm's conversion."""


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture name of `config.json`.

    `module` is mlx-lm's module of the text model, `model` and `arguments` its
    classes; `attention` the module whose attention layers it uses. Stored names
    that start with the first of a pair in `renamed` are the text model's under
    the second; those that start with one of `left_out` belong to other parts of
    the checkpoint. `kinds` are the layers that the library's code tells apart.
    """

    name: str
    model_type: str
    module: str
    attention: str = ""
    model: str = "Model"
    arguments: str = "ModelArgs"
    kinds: frozenset[str] = frozenset({FULL, SLIDING})
    renamed: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def attention_module(self) -> str:
        """The module whose attention layers the model uses."""
        return self.attention or self.module

    def text_name(self, stored: str) -> str | None:
        """What the text model calls the tensor `stored`; None if it is left out."""
        if stored.startswith(self.left_out):
            return None
        for before, after in self.renamed:
            if stored.startswith(before):
                return after + stored.removeprefix(before)
        return stored


def _qwen3_5(name: str, model_type: str, *left_out: str) -> Family:
    return Family(
        name,
        model_type,
        "qwen3_5",
        attention="qwen3_next",
        model="TextModel",
        arguments="TextModelArgs",
        kinds=frozenset({FULL, RECURRENT}),
        renamed=(WITHIN_MODEL, *CONVERTED),
        # A draft model of its own is stored beside the decoder.
        left_out=("mtp.", *left_out),
    )


VISION = (
    "model.vision_tower.",
    "model.multi_modal_projector.",
    "vision_tower.",
    "multi_modal_projector.",
)
MODALITIES = (
    "model.vision_tower.",
    "model.embed_vision.",
    "model.audio_tower.",
    "model.embed_audio.",
    "vision_tower.",
    "embed_vision.",
    "audio_tower.",
    "embed_audio.",
)

FAMILIES = {
    family.name: family
    for family in (
        Family("LlamaForCausalLM", "llama", "llama"),
        Family("MistralForCausalLM", "mistral", "llama"),
        Family("Qwen2ForCausalLM", "qwen2", "qwen2"),
        Family("Qwen3ForCausalLM", "qwen3", "qwen3"),
        Family("Gemma3ForCausalLM", "gemma3_text", "gemma3_text"),
        Family(
            "Gemma3ForConditionalGeneration",
            "gemma3",
            "gemma3_text",
            renamed=(WITHIN_MODEL, *CONVERTED),
            left_out=VISION,
        ),
        Family("Gemma4ForCausalLM", "gemma4_text", "gemma4_text"),
        Family(
            "Gemma4ForConditionalGeneration",
            "gemma4",
            "gemma4_text",
            renamed=(WITHIN_MODEL, *CONVERTED),
            left_out=MODALITIES,
        ),
        _qwen3_5("Qwen3_5ForCausalLM", "qwen3_5_text"),
        _qwen3_5("Qwen3_5ForConditionalGeneration", "qwen3_5", "model.visual.", "vision_tower."),
    )
}
"""By the name in `architectures`. Mixtures of experts are not among them."""
