"""A GGUF file made into a folder in the hub's format, a tensor at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import torch

from kakeya_fleet.engine.backends.gguf.tokenizer import write_tokenizer
from kakeya_fleet.engine.backends.gguf.weights import Placed, write_weights
from kakeya_fleet.engine.backends.torch_backend.architectures import read_architecture
from kakeya_fleet.engine.backends.torch_backend.checkpoint import check_shapes
from kakeya_fleet.engine.backends.torch_backend.dtypes import torch_dtype
from kakeya_fleet.engine.errors import GgufInvalid
from kakeya_fleet.engine.models.digests import SINGLE_WEIGHTS
from kakeya_fleet.engine.models.gguf.described import Described
from kakeya_fleet.engine.models.gguf.describing import describe
from kakeya_fleet.engine.models.gguf.entries import Entries
from kakeya_fleet.engine.models.gguf.header import GgufHeader

Progress = Callable[[int, int], None]


def convert(header: GgufHeader, folder: Path, dtype: str, progress: Progress | None = None) -> None:
    """Writes config, tokenizer and weights in `dtype` into `folder`, which is there and empty.

    All but the weights is written and checked first: a model that is not served, or lacks a
    tensor, costs no disk. `progress` hears of (done, total) bytes of the file. Raises a
    `ModelUnusable`, `OSError` of the disk.
    """
    described = describe(header)
    config = {**described.config, "dtype": dtype}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    entries = Entries(header)
    write_tokenizer(entries, folder)
    _check_vocabulary(entries, described)
    placed = {
        described.targets[name].name: Placed(tensor, described.targets[name])
        for name, tensor in header.tensors.items()
        if name in described.targets
    }
    architecture = read_architecture(folder)
    check_shapes(folder, architecture, {name: each.shape for name, each in placed.items()})
    total = sum(each.tensor.byte_count for each in placed.values())
    done = 0

    def written(byte_count: int) -> None:
        nonlocal done
        done += byte_count
        if progress is not None:
            progress(done, total)

    with torch.inference_mode():
        write_weights(header.path, placed, folder / SINGLE_WEIGHTS, torch_dtype(dtype), written)


def converted_bytes(header: GgufHeader, dtype: str) -> int:
    """Bytes that the weights will take in `dtype`; what else is written is less than a hundredth
    of a language model's."""
    return (
        sum(math.prod(each.shape) for each in header.tensors.values()) * torch_dtype(dtype).itemsize
    )


def _check_vocabulary(entries: Entries, described: Described) -> None:
    """Raises `GgufInvalid` if there are more tokens than rows of the embedding."""
    count, rows = len(entries.texts("tokenizer.ggml.tokens")), described.config["vocab_size"]
    if not isinstance(rows, int) or count > rows:
        path = entries.header.path
        raise GgufInvalid(f"{path} has {count} tokens and an embedding of {rows}", path=str(path))
