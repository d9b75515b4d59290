"""What each layer of an architecture keeps of the history in MLX's arrays."""

from __future__ import annotations

import mlx.core as mx
import transformers

from kakeya_fleet.engine.backends import layer_plan
from kakeya_fleet.engine.backends.architectures import Architecture
from kakeya_fleet.engine.backends.mlx_backend.recurrent import RecurrentShape
from kakeya_fleet.engine.contracts.kv_layout import KvLayout


def kv_layout(architecture: Architecture, dtype: mx.Dtype, *, ranks: int = 1) -> KvLayout:
    """What `architecture` keeps with activations in `dtype`; see `layer_plan.kv_layout`."""
    return layer_plan.kv_layout(
        architecture,
        dtype.size,
        lambda config: recurrent_shape(config, ranks).state_bytes(dtype.size),
        ranks=ranks,
    )


def recurrent_shape(config: transformers.PretrainedConfig, ranks: int = 1) -> RecurrentShape:
    """The shape that all recurrent layers of `config` have on each of `ranks`."""
    return RecurrentShape(
        key_heads=config.linear_num_key_heads // ranks,
        value_heads=config.linear_num_value_heads // ranks,
        key_dim=config.linear_key_head_dim,
        value_dim=config.linear_value_head_dim,
        kernel=config.linear_conv_kernel_dim,
    )
