"""The library's masked language models: BERT, RoBERTa, ModernBERT and their kin.

The class is the one that the library's masked-language-model table names for the
`model_type`; code in a checkpoint's folder is never run.
"""

from __future__ import annotations

import transformers

from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.blueprint import (
    Blueprint,
    Entries,
    StoredNames,
    named_architecture,
)
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.decoders import (
    BIDIRECTIONAL,
    DECLARED,
)
from kakeya_fleet.engine.errors import ArchitectureUnsupported

OFFSET_POSITIONS = frozenset(
    {
        "camembert",
        "data2vec-text",
        "ibert",
        "longformer",
        "luke",
        "mpnet",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    }
)
"""Their first position has the number `pad_token_id` + 1, so that fewer fit into the table."""

ENCODER_NAMES = StoredNames(
    renamed=(
        # As BERT's first checkpoints, converted from TensorFlow, call them.
        (r"LayerNorm\.gamma$", "LayerNorm.weight"),
        (r"LayerNorm\.beta$", "LayerNorm.bias"),
    ),
    # Heads of other tasks that published checkpoints hold beside the masked one.
    left_out=(r"^\w+\.pooler\.", r"^cls\.seq_relationship\.", r"^discriminator_predictions\."),
)


def encoder_blueprint(entries: Entries) -> Blueprint:
    """The model of a masked language model's config.

    Raises `ArchitectureUnsupported` for anything else, `ValueError` and the
    library's errors for entries that cannot be.
    """
    model_type, name = str(entries.get("model_type")), named_architecture(entries)
    model_class = _model_class(model_type, name)
    own = {entry: value for entry, value in entries.items() if entry != "auto_map"}
    config = model_class.config_class.from_dict(own)
    if config.is_encoder_decoder or getattr(config, "is_decoder", False):
        raise ArchitectureUnsupported(
            f"{name} with a decoder is not served; served is an encoder alone", architecture=name
        )
    length = getattr(config, "max_position_embeddings", None)
    if not isinstance(length, int):
        raise ArchitectureUnsupported(
            f"{name} is not served: its config gives no max_position_embeddings",
            architecture=name,
        )
    if model_type in OFFSET_POSITIONS:
        length -= int(config.pad_token_id) + 1
    if length < 1:
        raise ValueError(f"max_position_embeddings leaves {length} positions")
    return Blueprint(
        architecture=name,
        model_class=model_class,
        config=config,
        names=ENCODER_NAMES,
        vocabulary_size=config.vocab_size,
        context_length=length,
        usual_shift=0,
        keeps_keys=False,
    )


def _model_class(model_type: str, name: str) -> type[transformers.PreTrainedModel]:
    """The library's masked language model of `model_type`, if `name` is that."""
    if model_type in transformers.CONFIG_MAPPING:
        config_class = transformers.CONFIG_MAPPING[model_type]
        if config_class in transformers.MODEL_FOR_MASKED_LM_MAPPING:
            found: type[transformers.PreTrainedModel] = transformers.MODEL_FOR_MASKED_LM_MAPPING[
                config_class
            ]
            if found.__name__ == name:
                return found
            raise ArchitectureUnsupported(
                f"{name or 'an unnamed architecture'} of {model_type} is no masked language "
                f"model; {found.__name__} is",
                architecture=name,
            )
    raise ArchitectureUnsupported(
        f"{name or 'an unnamed architecture'} with model_type {model_type} is no masked language "
        "model of the library, and none of the decoders served as one: "
        + ", ".join((*BIDIRECTIONAL, *DECLARED)),
        architecture=name,
    )
