"""What each layer of a model keeps of the history in torch's tensors."""

from __future__ import annotations

import torch

from kakeya_fleet.engine.backends import layer_plan
from kakeya_fleet.engine.backends.architectures import Architecture
from kakeya_fleet.engine.backends.torch_backend.recurrent import RecurrentState
from kakeya_fleet.engine.backends.torch_backend.recurrent_shape import RecurrentShape
from kakeya_fleet.engine.backends.torch_backend.text_model import TextModel
from kakeya_fleet.engine.contracts.kv_layout import KvLayout, RecurrentLayer


def kv_layout(architecture: Architecture, dtype: torch.dtype, *, ranks: int = 1) -> KvLayout:
    """What `architecture` keeps with weights in `dtype`; see `layer_plan.kv_layout`."""
    return layer_plan.kv_layout(
        architecture,
        dtype.itemsize,
        lambda config: RecurrentShape.of(config, dtype).state_bytes,
        ranks=ranks,
    )


def new_states(model: TextModel, layout: KvLayout) -> dict[int, RecurrentState]:
    """An empty state for each recurrent layer of `model`, by the layer's index."""
    return {
        index: RecurrentState(model.delta_rule(index))
        for index, layer in enumerate(layout.layers)
        if isinstance(layer, RecurrentLayer)
    }
