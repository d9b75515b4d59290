"""A model of the hub's format on paper: what MLX would load of it."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from kakeya_fleet.engine.backends.mlx_backend.architectures import (
    MlxArchitecture,
    read_architecture,
)
from kakeya_fleet.engine.backends.mlx_backend.checkpoint import unread_model
from kakeya_fleet.engine.backends.mlx_backend.dtypes import mlx_dtype
from kakeya_fleet.engine.backends.mlx_backend.layer_plan import kv_layout
from kakeya_fleet.engine.backends.mlx_backend.weight_choice import quantize
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.engine.errors import WeightFormatUnsupported
from kakeya_fleet.engine.models.digests import has_weights, weight_bytes
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.weight_choice import AUTO, BITS, WEIGHTS, require_auto
from kakeya_fleet.engine.verifiers import exactness


def folder_on_paper(folder: ModelFolder, *, dtype: str) -> ModelOnPaper:
    """The model in `folder`, computed in `dtype`.

    Config and the headers of the weights' files are read, and checked as loading checks them;
    where there are no weights, as of a model of which the config alone was fetched, the config.
    Raises a `ModelUnusable`, `BadParameters` for an unknown dtype.
    """
    number = mlx_dtype(dtype)
    architecture = read_architecture(folder.path)
    sizes: dict[str, int] = {}
    refused: dict[str, str] = {}
    for weights in WEIGHTS:
        model, loading_bytes = unread_model(folder.path, architecture, number)
        try:
            _choose(model, architecture, weights)
        except WeightFormatUnsupported as error:
            refused[weights] = str(error)
            continue
        sizes[weights] = _bytes(model)
    layout = kv_layout(architecture, number)
    return ModelOnPaper(
        name=folder.model_id,
        architecture=architecture.name,
        dtype=dtype,
        layout=layout,
        weight_bytes=sizes,
        loading_bytes=dict.fromkeys(sizes, loading_bytes),
        checking_bytes=exactness.bytes_needed(layout, architecture.config.vocab_size),
        refused=refused,
        file_bytes=weight_bytes(folder.path) if has_weights(folder.path) else 0,
    )


def _choose(model: nn.Module, architecture: MlxArchitecture, weights: str) -> None:
    """As a load does: rounded weights are as large as they were."""
    if weights != AUTO and architecture.quantization is not None:
        require_auto(weights, "a checkpoint whose weights are not quantized already")
    if weights in BITS:
        quantize(model, weights)


def _bytes(model: nn.Module) -> int:
    """Of all weights of a model, which need not be there yet."""
    arrays: list[mx.array] = [array for _, array in tree_flatten(model.parameters())]
    return sum(array.nbytes for array in arrays)
