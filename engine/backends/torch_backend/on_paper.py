"""A model of the hub's format on paper: what torch would load of it."""

from __future__ import annotations

from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.torch_backend.architectures import (
    TorchArchitecture,
    read_architecture,
)
from kakeya_fleet.engine.backends.torch_backend.checkpoint import empty_model, open_checkpoint
from kakeya_fleet.engine.backends.torch_backend.compiled.library import will_be
from kakeya_fleet.engine.backends.torch_backend.dtypes import torch_dtype
from kakeya_fleet.engine.backends.torch_backend.layer_plan import kv_layout
from kakeya_fleet.engine.backends.torch_backend.weight_sizes import (
    Loading,
    StoredItems,
    loading_of,
    stored_as,
    stored_in,
)
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.engine.errors import WeightFormatUnsupported
from kakeya_fleet.engine.models.digests import has_weights, weight_bytes
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.own_dtype import own_dtype
from kakeya_fleet.engine.models.weight_choice import WEIGHTS
from kakeya_fleet.engine.verifiers import exactness


def folder_on_paper(folder: ModelFolder, *, dtype: str) -> ModelOnPaper:
    """The model in `folder`, computed in `dtype`.

    Config and the headers of the weights' files are read, and checked as loading checks them;
    where there are no weights, as of a model of which the config alone was fetched, the config.
    Raises a `ModelUnusable`, `BadParameters` for an unknown dtype.
    """
    architecture = read_architecture(folder.path)
    number = torch_dtype(dtype)
    if not has_weights(folder.path):
        model = empty_model(folder.path, architecture, number)
        stored = stored_as(torch_dtype(own_dtype(folder.path)))
        return _on_paper(folder.model_id, architecture, model, stored, dtype)
    checkpoint = open_checkpoint(folder.path, architecture, dtype=number)
    return _on_paper(
        folder.model_id,
        architecture,
        checkpoint.model,
        stored_in(checkpoint),
        dtype,
        file_bytes=weight_bytes(folder.path),
    )


def _on_paper(
    name: str,
    architecture: TorchArchitecture,
    model: PreTrainedModel,
    stored: StoredItems,
    dtype: str,
    *,
    file_bytes: int = 0,
) -> ModelOnPaper:
    """What is known of a `model` without weights, to be computed in `dtype`."""
    number = torch_dtype(dtype)
    layout = kv_layout(architecture, number)
    has_library = will_be()
    found: dict[str, Loading] = {}
    refused: dict[str, str] = {}
    for weights in WEIGHTS:
        try:
            found[weights] = loading_of(
                model,
                weights,
                number,
                stored,
                is_tied=bool(architecture.config.tie_word_embeddings),
                has_library=has_library,
            )
        except WeightFormatUnsupported as error:
            refused[weights] = str(error)
    return ModelOnPaper(
        name=name,
        architecture=architecture.name,
        dtype=dtype,
        layout=layout,
        weight_bytes={weights: each.kept_bytes for weights, each in found.items()},
        loading_bytes={weights: each.needed_bytes for weights, each in found.items()},
        working_bytes=max(each.working_bytes + each.kernel_bytes for each in found.values()),
        checking_bytes=exactness.bytes_needed(layout, architecture.config.vocab_size),
        refused=refused,
        file_bytes=file_bytes,
    )
