"""A GGUF file on paper: what is loaded once it has been converted."""

from __future__ import annotations

from kakeya_fleet.engine.backends.gguf.weights import Placed
from kakeya_fleet.engine.backends.torch_backend.architectures import architecture_of
from kakeya_fleet.engine.backends.torch_backend.checkpoint import check_shapes, empty_model
from kakeya_fleet.engine.backends.torch_backend.dtypes import torch_dtype
from kakeya_fleet.engine.backends.torch_backend.on_paper import model_on_paper
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.engine.models.gguf.describing import describe
from kakeya_fleet.engine.models.gguf.header import read_header
from kakeya_fleet.engine.models.gguf.own_dtype import gguf_dtype
from kakeya_fleet.engine.models.gguf.source import GgufFile
from kakeya_fleet.engine.models.own_dtype import AUTO


def gguf_on_paper(file: GgufFile, dtype: str) -> ModelOnPaper:
    """The model in `file`, whose header alone is read; `dtype` as a conversion takes it.

    Raises a `ModelUnusable`, as conversion does before it makes a number.
    """
    header = read_header(file.path)
    described = describe(header)
    architecture = architecture_of(described.config, file.path)
    placed = {
        described.targets[name].name: Placed(tensor, described.targets[name])
        for name, tensor in header.tensors.items()
        if name in described.targets
    }
    check_shapes(file.path, architecture, {name: each.shape for name, each in placed.items()})
    number = gguf_dtype(header) if dtype == AUTO else dtype
    return model_on_paper(
        file.model_id,
        architecture,
        empty_model(file.path, architecture, torch_dtype(number)),
        number,
        file_bytes=sum(each.tensor.byte_count for each in placed.values()),
    )
