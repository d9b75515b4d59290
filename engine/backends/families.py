"""The model families served: their names, and how the hub stores their weights."""

from __future__ import annotations

from dataclasses import dataclass

FULL = "full_attention"
SLIDING = "sliding_attention"
RECURRENT = "linear_attention"


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture name of `config.json`.

    `model_type` is what transformers calls its config, `text_model` the architecture
    of its text part. Stored names that start with the first of a pair in `renamed`
    are the text model's under the second; those that start with one of `left_out`
    belong to other parts of the checkpoint; then each first of `renamed_parts` is the
    second anywhere in a name. `kinds` are the layers that the libraries' code tells
    apart. `has_experts`: all of its models are mixtures of experts; with
    `has_turned_experts` stored as one for a layer, [experts, inputs, outputs], those
    of gate and up by turns.
    """

    name: str
    model_type: str
    text_model: str
    kinds: frozenset[str] = frozenset({FULL, SLIDING})
    renamed: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()
    renamed_parts: tuple[tuple[str, str], ...] = ()
    has_experts: bool = False
    has_turned_experts: bool = False

    def text_name(self, stored: str) -> str | None:
        """What the text model calls the tensor `stored`; None if it is left out."""
        if stored.startswith(self.left_out):
            return None
        name = stored
        for before, after in self.renamed:
            if stored.startswith(before):
                name = after + stored.removeprefix(before)
                break
        for before, after in self.renamed_parts:
            name = name.replace(before, after)
        return name


WITHIN_MODEL = ("model.language_model.", "model.")
"""Where a model of several modalities keeps its text part."""

FAMILIES = {
    family.name: family
    for family in (
        Family("LlamaForCausalLM", "llama", "LlamaForCausalLM"),
        Family("MistralForCausalLM", "mistral", "MistralForCausalLM"),
        Family("Qwen2ForCausalLM", "qwen2", "Qwen2ForCausalLM"),
        Family("Qwen3ForCausalLM", "qwen3", "Qwen3ForCausalLM"),
        Family("Qwen3MoeForCausalLM", "qwen3_moe", "Qwen3MoeForCausalLM", has_experts=True),
        Family(
            "MixtralForCausalLM",
            "mixtral",
            "MixtralForCausalLM",
            renamed_parts=(
                (".block_sparse_moe.", ".mlp."),
                (".w1.weight", ".gate_proj.weight"),
                (".w2.weight", ".down_proj.weight"),
                (".w3.weight", ".up_proj.weight"),
            ),
            has_experts=True,
        ),
        Family(
            "GptOssForCausalLM",
            "gpt_oss",
            "GptOssForCausalLM",
            has_experts=True,
            has_turned_experts=True,
        ),
        Family("Phi3ForCausalLM", "phi3", "Phi3ForCausalLM"),
        Family("Olmo2ForCausalLM", "olmo2", "Olmo2ForCausalLM"),
        Family("Gemma3ForCausalLM", "gemma3_text", "Gemma3ForCausalLM"),
        Family(
            "Gemma3ForConditionalGeneration",
            "gemma3",
            "Gemma3ForCausalLM",
            renamed=(
                WITHIN_MODEL,
                ("language_model.model.", "model."),
                ("language_model.lm_head.", "lm_head."),
            ),
            left_out=(
                "model.vision_tower.",
                "model.multi_modal_projector.",
                "vision_tower.",
                "multi_modal_projector.",
            ),
        ),
        Family("Gemma4ForCausalLM", "gemma4_text", "Gemma4ForCausalLM"),
        Family(
            "Gemma4ForConditionalGeneration",
            "gemma4",
            "Gemma4ForCausalLM",
            renamed=(WITHIN_MODEL,),
            left_out=(
                "model.vision_tower.",
                "model.embed_vision.",
                "model.audio_tower.",
                "model.embed_audio.",
            ),
        ),
        Family(
            "Qwen3_5ForCausalLM",
            "qwen3_5_text",
            "Qwen3_5ForCausalLM",
            frozenset({FULL, RECURRENT}),
            # A draft model of its own, stored beside the decoder.
            left_out=("mtp.",),
        ),
        Family(
            "Qwen3_5ForConditionalGeneration",
            "qwen3_5",
            "Qwen3_5ForCausalLM",
            frozenset({FULL, RECURRENT}),
            renamed=(WITHIN_MODEL,),
            left_out=("model.visual.", "mtp."),
        ),
    )
}
"""By the name in `architectures`."""
