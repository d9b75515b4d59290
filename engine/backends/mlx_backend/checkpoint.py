"""Strict loading of a checkpoint: all of it, exactly, or nothing."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Protocol, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from kakeya_fleet.engine.backends.mlx_backend.architectures import MlxArchitecture
from kakeya_fleet.engine.backends.mlx_backend.expert_weights import (
    expert_weights,
    with_experts,
)
from kakeya_fleet.engine.backends.mlx_backend.experts import (
    expert_layers,
    is_experts,
    replace_experts,
)
from kakeya_fleet.engine.backends.mlx_backend.library import model_module
from kakeya_fleet.engine.backends.mlx_backend.model_arguments import model_arguments
from kakeya_fleet.engine.backends.stored_tensors import (
    FLOAT_TYPES,
    PACKED_TYPES,
    StoredTensor,
    listed,
    refuse,
    stored_tensors,
)
from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelUnusable, WeightsMismatch
from kakeya_fleet.engine.models.digests import has_weights
from kakeya_fleet.engine.models.weight_memory import check_weights_fit
from kakeya_fleet.engine.models.weight_reading import weights_read

EMBEDDING = "model.embed_tokens"
HEAD = "lm_head"
SCALES = "scales"
STORED_AS_ONE = 6
"""Times a layer's experts' gate: with up as they are stored, twice as wide, and itself as wide."""
DERIVED_SUFFIX = ".rotary_emb.inv_freq"
"""Buffers that older checkpoints store and that the config determines."""
PRECISE_SUFFIX = ".A_log"
"""Weights that stay in float32: they are exponents of exponents."""


Kinds = dict[str, tuple[tuple[int, ...], mx.Dtype]]
"""Shape and number format of weights, by name."""


class Cut(Protocol):
    """Makes of a model the part that this process computes."""

    def check(self, empty: nn.Module) -> None:
        """Cuts a model without weights; raises a `ModelUnusable` when it cannot be."""
        ...

    def cut(self, model: nn.Module) -> None:
        """Cuts a model whose weights are not read yet; computes nothing."""
        ...


def load_model(
    folder: Path,
    architecture: MlxArchitecture,
    *,
    dtype: mx.Dtype,
    available_bytes: int,
    shard: Cut | None = None,
) -> nn.Module:
    """mlx-lm's text model with the weights in `folder`, those that are not packed in `dtype`.

    With `shard` the part of it that `shard` makes; all of the checkpoint is checked
    before that, and its tensors are read one after the other. Raises `WeightsMismatch`
    naming missing, unexpected, mis-shaped, not finite and unreadable tensors,
    `OutOfMemory` when `available_bytes` do not hold it. Both before a weight is read,
    except for a file that breaks off and for numbers that are not finite.
    """
    stored = stored_tensors(folder, partial(_own_name, architecture))
    model, weights, expected = _opened(folder, architecture, stored, dtype)
    kept = expected
    if shard is not None:
        empty = _empty_model(folder, architecture, stored)
        shard.check(empty)
        kept = _kinds(empty)
    check_weights_fit(
        folder,
        _loading_bytes(expected, kept, dtype),
        available_bytes,
        instead="a smaller model, a quantized one or dtype bfloat16",
    )
    # Nothing is read yet.
    weights = {
        name: array.astype(_kept_dtype(name, array.dtype, dtype)) for name, array in weights.items()
    }
    model.load_weights(list(weights.items()), strict=True)
    del weights
    if shard is not None:
        shard.cut(model)
    _read(folder, model)
    model.eval()
    # Also what the config determines, such as RoPE's frequencies: no array may wait to be
    # computed by whichever thread asks first.
    mx.eval([array for _, array in tree_flatten(model) if isinstance(array, mx.array)])
    return model


def unread_model(
    folder: Path, architecture: MlxArchitecture, dtype: mx.Dtype
) -> tuple[nn.Module, int]:
    """The model in `folder` with weights in `dtype` that are never computed.

    And the bytes that must be free to load it. Without weights in the folder it is that of its
    config. Raises as `load_model` does before a weight is read.
    """
    if has_weights(folder):
        stored = stored_tensors(folder, partial(_own_name, architecture))
        model, _, expected = _opened(folder, architecture, stored, dtype)
    else:
        model = _empty_model(folder, architecture, {})
        expected = _kinds(model)
    kept = [
        (name, array.astype(_kept_dtype(name, array.dtype, dtype)))
        for name, array in tree_flatten(model.parameters())
    ]
    model.load_weights(kept, strict=True)
    return model, _loading_bytes(expected, expected, dtype)


def _opened(
    folder: Path, architecture: MlxArchitecture, stored: dict[str, StoredTensor], dtype: mx.Dtype
) -> tuple[nn.Module, dict[str, mx.array], Kinds]:
    """An empty model, the weights for it, which are read when they are asked for, and their kinds.

    Those of experts are in `dtype`.

    Raises `WeightsMismatch` unless they are those of the model.
    """
    model = _empty_model(folder, architecture, stored)
    expected = _kinds(model)
    tied = bool(architecture.config.tie_word_embeddings)
    if tied:
        expected = {name: kind for name, kind in expected.items() if not _is_of(name, HEAD)}
    made = expert_weights(folder, {name: kind[0] for name, kind in expected.items()}, stored)
    _check_names(folder, expected, with_experts(stored, made), tied=tied)
    weights = _lazy_weights(stored)
    if tied:
        _drop_tied_head(folder, weights)
    for each in made:
        weights[each.name] = each.made(weights, lambda array: array.astype(dtype))
    for source in {source for each in made for source in each.sources}:
        del weights[source]
    # What a conversion leaves to do; some families' have nothing.
    sanitize = getattr(model, "sanitize", None)
    if sanitize is not None:
        weights = sanitize(weights)
    _check_shapes(folder, expected, weights)
    return model, weights, expected


def _kinds(model: nn.Module) -> Kinds:
    """Shape and number format of each weight of `model`, by name. Computes none."""
    return {name: (array.shape, array.dtype) for name, array in tree_flatten(model.parameters())}


def _own_name(architecture: MlxArchitecture, name: str) -> str | None:
    """The text model's name of a stored tensor; None for what it has no use for."""
    own = architecture.text_name(name)
    return None if own is None or own.endswith(DERIVED_SUFFIX) else own


def _empty_model(
    folder: Path, architecture: MlxArchitecture, stored: dict[str, StoredTensor]
) -> nn.Module:
    """The model with weights that are never computed, quantized where the stored ones are."""
    code, quantization = architecture.code, architecture.quantization
    module = model_module(code.module)
    wanted = model_arguments(architecture)
    try:
        model = getattr(module, code.model)(getattr(module, code.arguments).from_dict(wanted))
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        raise ModelUnusable(
            f"{folder}/config.json asks for a model that cannot be: {error!r}", path=str(folder)
        ) from error
    replace_experts(model)
    if architecture.has_experts and not any(True for _ in expert_layers(model)):
        raise ArchitectureUnsupported(
            f"this version of mlx-lm has experts in {architecture.name} that are not known here",
            architecture=architecture.name,
        )
    if quantization is None:
        return model

    def sizes(path: str, layer: nn.Module) -> bool | dict[str, int]:
        if not hasattr(layer, "to_quantized") or f"{path}.{SCALES}" not in stored:
            return False
        own = quantization.layers.get(path, (quantization.bits, quantization.group_size))
        return False if own is None else {"bits": own[0], "group_size": own[1]}

    try:
        nn.quantize(
            model,
            group_size=quantization.group_size,
            bits=quantization.bits,
            class_predicate=sizes,
        )
    except ValueError as error:
        raise ModelUnusable(
            f"config.json of {folder} asks for a quantization that cannot be: {error}",
            path=str(folder),
        ) from error
    return model


def _check_names(
    folder: Path,
    expected: Kinds,
    stored: dict[str, StoredTensor],
    *,
    tied: bool,
) -> None:
    """Raises `WeightsMismatch` unless the stored tensors are those of the architecture."""
    found = {name for name in stored if not (tied and _is_of(name, HEAD))}
    shared = expected.keys() & found
    packed = {name for name in shared if expected[name][1] == mx.uint32}
    types = [name for name in packed if stored[name].dtype not in PACKED_TYPES]
    types += [name for name in shared - packed if stored[name].dtype not in FLOAT_TYPES]
    refuse(
        folder,
        {
            "missing": sorted(expected.keys() - found),
            "unexpected": sorted(found - expected.keys()),
            "wrong type": sorted(types),
        },
    )


def _check_shapes(
    folder: Path,
    expected: Kinds,
    weights: dict[str, mx.array],
) -> None:
    """Raises `WeightsMismatch` unless `weights` have the names and shapes expected."""
    shared = expected.keys() & weights.keys()
    refuse(
        folder,
        {
            "missing": sorted(expected.keys() - weights.keys()),
            "unexpected": sorted(weights.keys() - expected.keys()),
            "wrong shape": sorted(n for n in shared if weights[n].shape != expected[n][0]),
        },
    )


def _lazy_weights(stored: dict[str, StoredTensor]) -> dict[str, mx.array]:
    """Arrays that are read when they are evaluated."""
    weights: dict[str, mx.array] = {}
    for path in sorted({tensor.file for tensor in stored.values()}):
        try:
            arrays = cast(dict[str, mx.array], mx.load(str(path)))
        except (RuntimeError, ValueError) as error:
            raise _unreadable(path, error) from error
        for name, tensor in stored.items():
            if tensor.file == path:
                weights[name] = arrays[tensor.name]
    return weights


def _drop_tied_head(folder: Path, weights: dict[str, mx.array]) -> None:
    """Drops a stored head. Raises `WeightsMismatch` if it is not the embedding."""
    for name in [name for name in weights if _is_of(name, HEAD)]:
        embedding = weights.get(EMBEDDING + name.removeprefix(HEAD))
        if embedding is None or not mx.array_equal(weights.pop(name), embedding):
            raise WeightsMismatch(
                f"config.json of {folder} ties {name} to {EMBEDDING}, but the stored ones differ",
                path=str(folder),
                unexpected=name,
            )


def _loading_bytes(expected: Kinds, kept: Kinds, dtype: mx.Dtype) -> int:
    """Bytes that must be free to load those of the `expected` weights that are `kept`."""
    # While one tensor is converted, it is there twice, and may be wider on disk.
    largest = max(_sizes(expected, dtype), default=0)
    of_experts = {name: kind for name, kind in expected.items() if is_experts(name)}
    apart = max(_sizes(of_experts, dtype), default=0)
    return sum(_sizes(kept, dtype)) + max(2 * largest, STORED_AS_ONE * apart)


def _sizes(kinds: Kinds, dtype: mx.Dtype) -> list[int]:
    """Bytes of each tensor as it is kept."""
    return [
        math.prod(shape) * _kept_dtype(name, kind, dtype).size
        for name, (shape, kind) in kinds.items()
    ]


def _read(folder: Path, model: nn.Module) -> None:
    """Reads all weights, one after the other. Raises `WeightsMismatch`."""
    broken: list[str] = []
    for name, array in tree_flatten(model.parameters()):
        try:
            mx.eval(array)
        except RuntimeError as error:
            raise _unreadable(folder, error) from error
        weights_read(array.nbytes)
        if array.dtype != mx.uint32 and not mx.isfinite(array).all().item():
            broken.append(name)
    if broken:
        raise WeightsMismatch(
            f"numbers in {folder} that are not finite: {listed(sorted(broken))}", path=str(folder)
        )


def _kept_dtype(name: str, kind: mx.Dtype, dtype: mx.Dtype) -> mx.Dtype:
    if kind == mx.uint32:
        return kind
    return mx.float32 if name.endswith(PRECISE_SUFFIX) else dtype


def _unreadable(path: Path, error: Exception) -> WeightsMismatch:
    return WeightsMismatch(
        f"weights in {path} cannot be read ({error}); fetch them again", path=str(path)
    )


def _is_of(name: str, module: str) -> bool:
    return name.startswith(module + ".")
