"""Strict loading of a checkpoint in the hub's format: all of it, exactly, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from kakeya_fleet.engine.backends.architectures import Architecture
from kakeya_fleet.engine.backends.stored_tensors import FLOAT_TYPES
from kakeya_fleet.engine.backends.torch_backend.activation import fix_activations
from kakeya_fleet.engine.backends.torch_backend.affine_weights import unpacked
from kakeya_fleet.engine.backends.torch_backend.architectures import TorchArchitecture
from kakeya_fleet.engine.backends.torch_backend.attention import ATTENTION_NAME
from kakeya_fleet.engine.backends.torch_backend.packed_linear import can_pack, pack_linears, packed
from kakeya_fleet.engine.backends.torch_backend.plain_decoder import simplify
from kakeya_fleet.engine.backends.torch_backend.plain_families import JOINT, is_plain
from kakeya_fleet.engine.backends.torch_backend.recurrent_mixing import fix_recurrent
from kakeya_fleet.engine.backends.torch_backend.sharding_plan import ModelShard
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import (
    StoredTensor,
    check_tensors,
    listed,
    read_tensors,
    stored_tensors,
)
from kakeya_fleet.engine.errors import (
    ArchitectureUnsupported,
    ModelUnusable,
    WeightsMismatch,
)
from kakeya_fleet.engine.models.weight_memory import check_weights_fit

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
DERIVED_SUFFIX = ".rotary_emb.inv_freq"
"""Buffers that older checkpoints store and that the config determines."""


def load_model(
    folder: Path,
    architecture: TorchArchitecture,
    *,
    dtype: torch.dtype,
    rows: int,
    available_bytes: int,
    shard: ModelShard | None = None,
    leaves: Callable[[PreTrainedModel], bool] | None = None,
) -> PreTrainedModel:
    """The text model in `folder` with all weights in `dtype`, for forwards of `rows` tokens.

    With `shard` the part of one rank: no other slices are read. One that `leaves` is for
    stays as the library builds it: its caller lays the weights out. Raises
    `WeightsMismatch` naming missing, unexpected, mis-shaped, not finite and
    unreadable tensors, `OutOfMemory` when `available_bytes` do not hold it.
    Both before a weight is read, except for a file that breaks off.
    """
    stored, quantized = unpacked(
        folder,
        stored_tensors(folder, partial(_text_name, architecture)),
        architecture.quantization,
    )
    config = architecture.config
    model = _empty_model(folder, architecture, dtype)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    tied = bool(config.tie_word_embeddings)
    needed = expected
    if tied and HEAD not in stored:
        needed = {name: shape for name, shape in expected.items() if name != HEAD}
    check_tensors(folder, needed, stored)
    plain = shard is None and is_plain(model)
    is_left = leaves is not None and leaves(model)
    parts = shard.cut(model) if shard is not None else {}
    kept = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    _check_memory(folder, kept, dtype, available_bytes, joined=plain)
    weights = read_tensors(stored, needed, dtype, parts, quantized)
    if tied:
        _tie(folder, weights)
    model.load_state_dict(weights, strict=True, assign=True)
    _compute_buffers(model)
    _check_complete(architecture.name, model)
    del weights
    model.requires_grad_(requires_grad=False)
    if shard is not None:
        shard.add_sums(model)
    if is_left:
        return model.eval()
    fix_activations(model)
    fix_recurrent(model, dtype)
    packs = can_pack(dtype)
    if plain:
        simplify(model, partial(packed, rows=rows) if packs else _unpacked)
    if packs:
        pack_linears(model, rows)
    return model.eval()


def check_shapes(
    folder: Path, architecture: Architecture, stored: Mapping[str, tuple[int, ...]]
) -> None:
    """Raises what loading raises of weights with these stored names and shapes.

    `WeightsMismatch` for missing, unexpected and mis-shaped ones, `ModelUnusable` for a config
    of which there can be no model.
    """
    found: dict[str, StoredTensor] = {}
    for stored_name, shape in stored.items():
        name = _text_name(architecture, stored_name)
        if name is not None:
            found[name] = StoredTensor(folder, stored_name, shape, FLOAT_TYPES[0])
    model = _empty_model(folder, architecture, torch.float32)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if architecture.config.tie_word_embeddings and HEAD not in found:
        del expected[HEAD]
    check_tensors(folder, expected, found)


def _unpacked(linear: nn.Linear) -> nn.Linear:
    return linear


def _empty_model(folder: Path, architecture: Architecture, dtype: torch.dtype) -> PreTrainedModel:
    """The library's model on no device. Raises `ModelUnusable` when there is none of the config."""
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                architecture.config, attn_implementation=ATTENTION_NAME, dtype=dtype
            )
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        raise ModelUnusable(
            f"{folder}/config.json asks for a model that cannot be: {error!r}", path=str(folder)
        ) from error
    if type(model).__name__ != architecture.family.text_model:
        raise ArchitectureUnsupported(
            f"this transformers version makes a {type(model).__name__} of {architecture.name}",
            architecture=architecture.name,
        )
    return model


def _text_name(architecture: Architecture, stored_name: str) -> str | None:
    """The text model's name of a stored tensor; None for what it does not take."""
    name = architecture.text_name(stored_name)
    return None if name is None or name.endswith(DERIVED_SUFFIX) else name


def _check_memory(
    folder: Path,
    expected: dict[str, tuple[int, ...]],
    dtype: torch.dtype,
    available_bytes: int,
    *,
    joined: bool,
) -> None:
    """Raises `OutOfMemory` when the weights in `dtype` take more than `available_bytes`.

    A tied head counts: packed for products it is a copy of the embedding.
    `joined` says that layers of the same input become one.
    """
    sizes = {name: torch.Size(shape).numel() * dtype.itemsize for name, shape in expected.items()}
    # While one tensor, or several as one, are converted or packed, they are there twice.
    twice = max([*sizes.values(), *(_joint_sizes(sizes) if joined else ())], default=0)
    needed = sum(sizes.values()) + twice
    check_weights_fit(folder, needed, available_bytes)


def _joint_sizes(sizes: dict[str, int]) -> Iterator[int]:
    """What those of `sizes` take together that become one layer."""
    for names in JOINT:
        first = f"{names[0]}.weight"
        for layer in (name.removesuffix(first) for name in sizes if name.endswith(first)):
            yield sum(sizes[f"{layer}{name}.weight"] for name in names)


def _tie(folder: Path, weights: dict[str, Tensor]) -> None:
    """Makes the head the embedding. Raises `WeightsMismatch` if a stored head differs."""
    if HEAD in weights and not torch.equal(weights[HEAD], weights[EMBEDDING]):
        raise WeightsMismatch(
            f"config.json of {folder} ties {HEAD} to {EMBEDDING}, but the stored ones differ",
            path=str(folder),
            unexpected=HEAD,
        )
    weights[HEAD] = weights[EMBEDDING]


def _compute_buffers(model: PreTrainedModel) -> None:
    """Makes the buffers that the config determines; on no device they were made without values."""
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    for module in model.modules():
        scale = getattr(module, "scalar_embed_scale", None)
        if scale is not None:
            module.embed_scale = torch.tensor(scale)


def _check_complete(name: str, model: PreTrainedModel) -> None:
    """Raises `ArchitectureUnsupported` if a buffer has no value: nothing runs half loaded."""
    empty = [key for key, tensor in model.named_buffers() if tensor.is_meta]
    if empty:
        raise ArchitectureUnsupported(
            f"{name} of this transformers version has buffers not known here: {listed(empty)}",
            architecture=name,
        )
