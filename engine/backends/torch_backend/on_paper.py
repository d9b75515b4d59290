"""A model of the hub's format on paper: what torch would load of it."""

from __future__ import annotations

import sys

from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.torch_backend.architectures import (
    TorchArchitecture,
    read_architecture,
)
from kakeya_fleet.engine.backends.torch_backend.checkpoint import (
    empty_model,
    loading_bytes,
    open_checkpoint,
)
from kakeya_fleet.engine.backends.torch_backend.dtypes import torch_dtype
from kakeya_fleet.engine.backends.torch_backend.layer_plan import kv_layout
from kakeya_fleet.engine.backends.torch_backend.plain_families import joint_layers
from kakeya_fleet.engine.backends.torch_backend.weight_sizes import loaded_bytes
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.engine.errors import WeightFormatUnsupported
from kakeya_fleet.engine.models.digests import has_weights, weight_bytes
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.weight_choice import WEIGHTS


def folder_on_paper(folder: ModelFolder, *, dtype: str) -> ModelOnPaper:
    """The model in `folder`, computed in `dtype`.

    Config and the headers of the weights' files are read, and checked as loading checks them;
    where there are no weights, as of a model of which the config alone was fetched, the config.
    Raises a `ModelUnusable`, `BadParameters` for an unknown dtype.
    """
    architecture = read_architecture(folder.path)
    if not has_weights(folder.path):
        model = empty_model(folder.path, architecture, torch_dtype(dtype))
        return model_on_paper(folder.model_id, architecture, model, dtype)
    checkpoint = open_checkpoint(
        folder.path, architecture, dtype=torch_dtype(dtype), available_bytes=sys.maxsize
    )
    return model_on_paper(
        folder.model_id,
        architecture,
        checkpoint.model,
        dtype,
        file_bytes=weight_bytes(folder.path),
    )


def model_on_paper(
    name: str,
    architecture: TorchArchitecture,
    model: PreTrainedModel,
    dtype: str,
    *,
    file_bytes: int = 0,
) -> ModelOnPaper:
    """What is known of a `model` without weights, to be computed in `dtype`."""
    number = torch_dtype(dtype)
    shapes = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    sizes: dict[str, int] = {}
    refused: dict[str, str] = {}
    for weights in WEIGHTS:
        try:
            sizes[weights] = loaded_bytes(
                model, weights, number, is_tied=bool(architecture.config.tie_word_embeddings)
            )
        except WeightFormatUnsupported as error:
            refused[weights] = str(error)
    return ModelOnPaper(
        name=name,
        architecture=architecture.name,
        dtype=dtype,
        layout=kv_layout(architecture, number),
        weight_bytes=sizes,
        loading_bytes=loading_bytes(shapes, number, joint_layers(model)),
        refused=refused,
        file_bytes=file_bytes,
    )
