"""What each layer of a model keeps of the history, read from its config."""

from __future__ import annotations

from collections.abc import Callable

import transformers

from kakeya_fleet.engine.backends.architectures import Architecture
from kakeya_fleet.engine.backends.families import RECURRENT, SLIDING
from kakeya_fleet.engine.contracts.kv_layout import (
    AttentionLayer,
    KvLayout,
    Layer,
    RecurrentLayer,
    SharedLayer,
)


def kv_layout(
    architecture: Architecture,
    item_bytes: int,
    state_bytes: Callable[[transformers.PretrainedConfig], int],
    *,
    ranks: int = 1,
) -> KvLayout:
    """What `architecture` keeps of its history in numbers of `item_bytes`.

    Of `ranks` that share its heads evenly, what one of them keeps. `state_bytes` are
    those of one recurrent layer of the config, on each rank.
    """
    config = architecture.config
    layers: list[Layer] = []
    kinds = zip(architecture.layer_kinds, architecture.sources, strict=True)
    for index, (kind, source) in enumerate(kinds):
        if kind == RECURRENT:
            layers.append(RecurrentLayer(state_bytes(config)))
        elif source is not None:
            layers.append(SharedLayer(source))
        else:
            layers.append(_attention_layer(config, index, kind, ranks))
    return KvLayout(tuple(layers), config.max_position_embeddings, item_bytes)


def _attention_layer(
    config: transformers.PretrainedConfig, index: int, kind: str, ranks: int
) -> AttentionLayer:
    # Gemma 4's layers have different heads; of other configs each layer has the config's.
    own = config.per_layer_config[index]
    heads = own.num_attention_heads
    kv_heads = getattr(own, "num_key_value_heads", None) or heads
    return AttentionLayer(
        kv_heads=kv_heads // ranks,
        groups=heads // kv_heads,
        head_dim=getattr(own, "head_dim", None) or own.hidden_size // heads,
        sliding_window=config.sliding_window if kind == SLIDING else None,
    )
