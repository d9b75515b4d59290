"""Whether a target is the one that a drafter is for, and what its ends are called."""

from __future__ import annotations

from transformers import PretrainedConfig

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.errors import TrainedForAnother
from kakeya_fleet.engine.models.model_folder import ModelFolder

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


def check_target(target: ModelFolder, config: DFlashConfig, text: PretrainedConfig) -> None:
    """Raises `TrainedForAnother` unless the target is of the shape that the drafter names.

    `text` is the config of the target's text part; its layers, hidden size and
    vocabulary count.
    """
    for entry, here, there in (
        ("num_target_layers", config.target_layer_count, text.num_hidden_layers),
        ("hidden_size", config.hidden_size, text.hidden_size),
        ("vocab_size", config.vocabulary_size, text.vocab_size),
    ):
        if here != there:
            raise TrainedForAnother(
                f"the drafter is for a target with {entry} {here}, and {target.model_id} has"
                f" {there}",
                target=target.model_id,
                entry=entry,
            )
