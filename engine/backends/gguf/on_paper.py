"""A GGUF file on paper: what is loaded once it has been converted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from kakeya_fleet.engine.backends.gguf.weights import Placed
from kakeya_fleet.engine.backends.torch_backend.architectures import architecture_of
from kakeya_fleet.engine.backends.torch_backend.checkpoint import check_shapes
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.engine.models.gguf.describing import describe
from kakeya_fleet.engine.models.gguf.header import read_header
from kakeya_fleet.engine.models.gguf.own_dtype import gguf_dtype
from kakeya_fleet.engine.models.gguf.source import GgufFile
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.own_dtype import AUTO


def gguf_on_paper(
    file: GgufFile, dtype: str, read: Callable[[ModelFolder, str], ModelOnPaper]
) -> ModelOnPaper:
    """The model in `file`, whose header alone is read; `dtype` as a conversion takes it.

    `read` says what a back end keeps of a folder, in a dtype: it gets one of the config that
    converting would write. Raises a `ModelUnusable`, as conversion does before it makes a number.
    """
    header = read_header(file.path)
    described = describe(header)
    placed = {
        described.targets[name].name: Placed(tensor, described.targets[name])
        for name, tensor in header.tensors.items()
        if name in described.targets
    }
    shapes = {name: each.shape for name, each in placed.items()}
    check_shapes(file.path, architecture_of(described.config, file.path), shapes)
    number = gguf_dtype(header) if dtype == AUTO else dtype
    with TemporaryDirectory(prefix="kakeya-") as name:
        config = {**described.config, "dtype": number}
        (Path(name) / "config.json").write_text(json.dumps(config), "utf-8")
        found = read(ModelFolder(Path(name), file.model_id), number)
    return replace(found, file_bytes=sum(each.tensor.byte_count for each in placed.values()))
