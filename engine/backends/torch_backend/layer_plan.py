"""What each layer of a model keeps of the history, read from its config."""

from __future__ import annotations

import torch
import transformers

from kakeya_fleet.engine.backends.torch_backend.architectures import Architecture
from kakeya_fleet.engine.backends.torch_backend.families import RECURRENT, SLIDING
from kakeya_fleet.engine.backends.torch_backend.recurrent import RecurrentState
from kakeya_fleet.engine.backends.torch_backend.recurrent_shape import RecurrentShape
from kakeya_fleet.engine.backends.torch_backend.text_model import TextModel
from kakeya_fleet.engine.contracts.kv_layout import (
    AttentionLayer,
    KvLayout,
    Layer,
    RecurrentLayer,
    SharedLayer,
)


def kv_layout(architecture: Architecture, dtype: torch.dtype) -> KvLayout:
    """What `architecture` keeps of its history with weights in `dtype`."""
    config = architecture.config
    layers: list[Layer] = []
    kinds = zip(architecture.layer_kinds, architecture.sources, strict=True)
    for index, (kind, source) in enumerate(kinds):
        if kind == RECURRENT:
            layers.append(RecurrentLayer(RecurrentShape.of(config, dtype).state_bytes))
        elif source is not None:
            layers.append(SharedLayer(source))
        else:
            layers.append(_attention_layer(config, index, kind))
    return KvLayout(tuple(layers), config.max_position_embeddings, dtype.itemsize)


def new_states(model: TextModel, layout: KvLayout) -> dict[int, RecurrentState]:
    """An empty state for each recurrent layer of `model`, by the layer's index."""
    return {
        index: RecurrentState(model.delta_rule(index))
        for index, layer in enumerate(layout.layers)
        if isinstance(layer, RecurrentLayer)
    }


def _attention_layer(
    config: transformers.PretrainedConfig, index: int, kind: str
) -> AttentionLayer:
    # Gemma 4's layers have different heads; of other configs each layer has the config's.
    own = config.per_layer_config[index]
    heads = own.num_attention_heads
    kv_heads = getattr(own, "num_key_value_heads", None) or heads
    return AttentionLayer(
        kv_heads=kv_heads,
        groups=heads // kv_heads,
        head_dim=getattr(own, "head_dim", None) or own.hidden_size // heads,
        sliding_window=config.sliding_window if kind == SLIDING else None,
    )
