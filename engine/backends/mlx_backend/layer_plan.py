"""What each layer of an architecture keeps of the history, read from its config."""

from __future__ import annotations

import mlx.core as mx
import transformers

from kakeya_fleet.engine.backends.mlx_backend.architectures import Architecture
from kakeya_fleet.engine.backends.mlx_backend.families import RECURRENT, SLIDING
from kakeya_fleet.engine.backends.mlx_backend.recurrent import RecurrentShape
from kakeya_fleet.engine.contracts.kv_layout import (
    AttentionLayer,
    KvLayout,
    Layer,
    RecurrentLayer,
    SharedLayer,
)


def kv_layout(architecture: Architecture, dtype: mx.Dtype, *, ranks: int = 1) -> KvLayout:
    """What `architecture` keeps of its history with activations in `dtype`.

    Of `ranks` that share its heads evenly, what one of them keeps.
    """
    config = architecture.config
    layers: list[Layer] = []
    for index, kind in enumerate(architecture.layer_kinds):
        source = architecture.sources[index]
        if kind == RECURRENT:
            layers.append(RecurrentLayer(recurrent_shape(config, ranks).state_bytes(dtype.size)))
        elif source is not None:
            layers.append(SharedLayer(source))
        else:
            layers.append(_attention_layer(config, index, kind, ranks))
    return KvLayout(tuple(layers), config.max_position_embeddings, dtype.size)


def recurrent_shape(config: transformers.PretrainedConfig, ranks: int = 1) -> RecurrentShape:
    """The shape that all recurrent layers of `config` have on each of `ranks`."""
    return RecurrentShape(
        key_heads=config.linear_num_key_heads // ranks,
        value_heads=config.linear_num_value_heads // ranks,
        key_dim=config.linear_key_head_dim,
        value_dim=config.linear_value_head_dim,
        kernel=config.linear_conv_kernel_dim,
    )


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
