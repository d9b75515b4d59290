"""Strict loading of a masked model: every tensor accounted for, or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.blueprint import Blueprint
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import (
    check_tensors,
    read_tensors,
    stored_tensors,
)
from kakeya_fleet.engine.errors import (
    ArchitectureUnsupported,
    ModelUnusable,
    WeightsMismatch,
)
from kakeya_fleet.engine.models.weight_memory import check_weights_fit

ATTENTION = "sdpa"


def load_masked_model(
    folder: Path, blueprint: Blueprint, *, dtype: torch.dtype, available_bytes: int
) -> PreTrainedModel:
    """The model in `folder` on the CPU, all weights in `dtype`, ready to predict.

    Raises `WeightsMismatch` naming tensors that are missing, unexpected,
    mis-shaped, unreadable or not finite, and a stored tensor that its config ties
    to another and that differs; `OutOfMemory` when `available_bytes` do not hold
    the weights, before one is read.
    """
    model = _empty_model(folder, blueprint, dtype)
    stored = stored_tensors(folder, blueprint.names.model_name)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    tied: dict[str, str] = {
        copy: source
        for copy, source in model.all_tied_weights_keys.items()
        if copy in shapes and source in shapes
    }
    needed = {name: shape for name, shape in shapes.items() if name in stored or name not in tied}
    check_tensors(folder, needed, stored)
    _check_memory(folder, needed.values(), dtype, available_bytes)
    weights = read_tensors(stored, needed, dtype)
    for copy, source in tied.items():
        if copy in weights and not torch.equal(weights[copy], weights[source]):
            raise WeightsMismatch(
                f"config.json of {folder} ties {copy} to {source}, but the stored ones differ",
                path=str(folder),
                unexpected=copy,
            )
        weights[copy] = weights[source]
    _compute_buffers(blueprint.architecture, model)
    model.load_state_dict(weights, strict=True, assign=True)
    model.requires_grad_(requires_grad=False)
    for module in model.modules():
        # Where there is no mask the library's attention asks the module, not the config.
        if getattr(module, "is_causal", False):
            module.is_causal = False
    return model.eval()


def _empty_model(folder: Path, blueprint: Blueprint, dtype: torch.dtype) -> PreTrainedModel:
    """The library's model on no device. Raises `ModelUnusable` when there is none of the config."""
    config = blueprint.config
    config.dtype = dtype
    config._attn_implementation = ATTENTION  # noqa: SLF001 - what the library's own loaders set
    try:
        with torch.device("meta"):
            return blueprint.model_class(config).to(dtype)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        raise ModelUnusable(
            f"{folder}/config.json asks for a model that cannot be: {error!r}", path=str(folder)
        ) from error


def _check_memory(
    folder: Path, shapes: Iterable[tuple[int, ...]], dtype: torch.dtype, available_bytes: int
) -> None:
    """Raises `OutOfMemory` when tensors of `shapes` take more than `available_bytes`."""
    sizes = [torch.Size(shape).numel() * dtype.itemsize for shape in shapes]
    # While one tensor is converted, it is there twice.
    total = sum(sizes) + max(sizes, default=0)
    check_weights_fit(folder, total, available_bytes)


def _compute_buffers(name: str, model: PreTrainedModel) -> None:
    """Gives the buffers that the config determines their values.

    The parameters must still be on no device: the library's initialisation, which
    knows the buffers' values, then changes nothing else. Raises
    `ArchitectureUnsupported` for a buffer that it leaves without a value.
    """
    for key, buffer in list(model.named_buffers()):
        parent, _, leaf = key.rpartition(".")
        # In float32 as the library has it: `to(dtype)` above rounded frequencies too.
        kind = torch.float32 if buffer.is_floating_point() else buffer.dtype
        unset = torch.zeros(buffer.shape, dtype=kind)
        if unset.is_floating_point():
            unset.fill_(torch.nan)
        elif kind != torch.bool:
            unset.fill_(torch.iinfo(kind).min)
        setattr(model.get_submodule(parent), leaf, unset)
    model.initialize_weights()
    left = sorted(key for key, buffer in model.named_buffers() if _is_unset(buffer))
    if left:
        raise ArchitectureUnsupported(
            f"{name} of this transformers version has buffers not known here: {', '.join(left)}",
            architecture=name,
        )


def _is_unset(buffer: Tensor) -> bool:
    """Whether a number of `buffer` was not computed."""
    if buffer.is_floating_point():
        return bool(buffer.isnan().any())
    return buffer.dtype != torch.bool and bool((buffer == torch.iinfo(buffer.dtype).min).any())
