"""Weights in the format compressed-tensors, made into numbers by its own library.

Served are weights in whole numbers of 1 to 8 bits, packed or not, and in floating-point numbers
of 8 bits, with a scale for all, for an output, for a group of an output's inputs or for a block.
What a config says of rounding a layer's inputs is left out: they are computed in full, which is
nearer to the model that was quantized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import compressed_tensors
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme
from compressed_tensors.utils.match import is_match
from torch import Tensor, nn

from kakeya_fleet.engine.backends.stored_tensors import FLOAT_TYPES, StoredTensor, refuse
from kakeya_fleet.engine.backends.torch_backend.quantized_weights import QuantizedWeight
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import read_whole
from kakeya_fleet.engine.errors import ArchitectureUnsupported
from kakeya_fleet.engine.models.json_object import Entries

PACKED = "pack-quantized"
FORMATS = (PACKED, "int-quantized", "float-quantized", "naive-quantized")
CHANNEL, GROUP, BLOCK = "channel", "group", "block"
STRATEGIES = ("tensor", CHANNEL, GROUP, BLOCK)
"""What shares a scale."""
WEIGHT, SCALE = ".weight", ".weight_scale"
OF_INPUTS = (".input_scale", ".input_zero_point", ".output_scale", ".output_zero_point")
"""Of rounding what goes into a layer and comes out of it."""
WORD_BITS = 32
QUANTIZED_TYPES = {("int", 8): "I8", ("float", 8): "F8_E4M3"}
"""How unpacked weights are stored, by kind and bits."""
OTHER_CHANGES = {
    "kv_cache_scheme": "keys and values",
    "transform_config": "what it rotates",
    "sparsity_config": "sparse weights",
    "moe_sparsity_config": "sparse experts",
}
"""Entries of a config that change what weights mean."""
MOST_PATTERNS = 4096
_REPEATED_GROUP = re.compile(r"\)[*+?{]")
_REPEATS = re.compile(r"[*+{]")
_MOST_REPEATS = 4
"""In one pattern: a name of n characters takes n to this power of steps at most."""


@dataclass(frozen=True, slots=True)
class CompressedWeight:
    """What is stored of a weight, by the library's names for it, and how it was quantized."""

    stored: Mapping[str, StoredTensor]
    shape: tuple[int, ...]
    scheme: QuantizationScheme

    @property
    def parts(self) -> tuple[StoredTensor, ...]:
        """In the order of the library's names."""
        return tuple(self.stored.values())

    def numbers(self, *parts: Tensor) -> Tensor:
        """As the library makes them, in the number format of the scales."""
        compressor = BaseCompressor.get_value_from_registry(self.scheme.format)
        made = compressor.decompress(dict(zip(self.stored, parts, strict=True)), self.scheme)
        weight: Tensor = made["weight"]
        return weight


@dataclass(frozen=True, slots=True)
class Compression:
    """What a config says of which layers are quantized, and how."""

    schemes: tuple[QuantizationScheme, ...]
    ignored: tuple[str, ...]
    _linear: nn.Module = field(default_factory=lambda: nn.Linear(1, 1, device="meta"))
    _embedding: nn.Module = field(default_factory=lambda: nn.Embedding(1, 1, device="meta"))

    @property
    def label(self) -> str:
        """Such as `compressed-int4-g128`; with `-mixed` when layers differ."""
        first, *others = self.schemes
        own, more = _label(first), {_label(each) for each in others}
        return f"compressed-{own}" + ("-mixed" if more - {own} else "")

    def unpacked(
        self, folder: Path, stored: Mapping[str, StoredTensor]
    ) -> tuple[dict[str, StoredTensor], dict[str, QuantizedWeight]]:
        """See `WeightQuantization.unpacked`."""
        found = {name: each for name, each in stored.items() if not name.endswith(OF_INPUTS)}
        quantized: dict[str, QuantizedWeight] = {}
        missing, wrong = [], []
        for name in [each for each in found if each.endswith(SCALE)]:
            layer = name.removesuffix(SCALE)
            scheme = self._scheme_of(found[name].name.removesuffix(SCALE))
            if scheme is None:
                wrong.append(layer)
                continue
            parts = {own: found.pop(f"{layer}.{own}", None) for own in _part_names(scheme)}
            missing += [f"{layer}.{own}" for own, part in parts.items() if part is None]
            whole = {own: part for own, part in parts.items() if part is not None}
            if len(whole) < len(parts):
                continue
            shape = _shape(whole)
            if not _together(whole, shape, scheme):
                wrong.append(layer)
                continue
            weight, scale = f"{layer}{WEIGHT}", whole["weight_scale"]
            quantized[weight] = CompressedWeight(whole, shape, scheme)
            found[weight] = StoredTensor(scale.file, scale.name, shape, scale.dtype)
        refuse(folder, {"missing": sorted(missing), "not quantized as it says": sorted(wrong)})
        return found, quantized

    def _scheme_of(self, layer: str) -> QuantizationScheme | None:
        """That of the layer stored by this name; None for one that is none's."""
        is_embedding = layer.rpartition(".")[2] == "embed_tokens"
        module = self._embedding if is_embedding else self._linear
        for scheme in self.schemes:
            if is_match(layer, module, scheme.targets, self.ignored):
                return scheme
        return None


def read_compression(entries: Entries) -> Compression:
    """What `quantization_config` says.

    Raises `ValueError` for what is not valid, `ArchitectureUnsupported` for what is not served.
    """
    try:
        config = QuantizationConfig.model_validate(entries)
    except (KeyError, TypeError, NotImplementedError) as error:
        raise ValueError(f"quantization_config: {error}") from error
    for entry, what in OTHER_CHANGES.items():
        if entries.get(entry):
            _not_served(f"{what} ({entry})", entry)
    schemes = []
    for each in config.config_groups.values():
        if not isinstance(each, QuantizationScheme) or each.weights is None:
            raise ValueError("quantization_config has a group without weights")
        scheme = each.model_copy(update={"format": str(_value(each.format or config.format))})
        _check_scheme(scheme)
        schemes.append(scheme)
    if not schemes:
        raise ValueError("quantization_config has no groups")
    ignored = tuple(config.ignore or ())
    _check_patterns([*ignored, *(target for each in schemes for target in each.targets)])
    return Compression(tuple(schemes), ignored)


def _value(named: object) -> object:
    """Of a member of an enum, or the string that stands for it."""
    return getattr(named, "value", named)


def _check_scheme(scheme: QuantizationScheme) -> None:
    weights = scheme.weights
    if scheme.format not in FORMATS:
        _not_served(f"weights in format {scheme.format}", str(scheme.format))
    if weights.strategy not in STRATEGIES or (weights.strategy == BLOCK) != bool(
        weights.block_structure
    ):
        _not_served(f"scales a {weights.strategy}", str(weights.strategy))
    if scheme.format != PACKED and (weights.type, weights.num_bits) not in QUANTIZED_TYPES:
        _not_served(f"{weights.type}s of {weights.num_bits} bits", str(scheme.format))
    if weights.strategy == GROUP and not (weights.group_size or 0) > 0:
        raise ValueError(f"quantization_config has groups of {weights.group_size}")


def _not_served(what: str, named: str) -> NoReturn:
    served = ", ".join(FORMATS)
    raise ArchitectureUnsupported(
        f"compressed-tensors {compressed_tensors.__version__} has quantized {what[:64]}, which is"
        f" not served ({served} are): llama.cpp's convert_hf_to_gguf.py makes a GGUF of it",
        architecture=f"compressed-tensors {named[:64]}",
    )


def _check_patterns(patterns: list[str]) -> None:
    """Raises `ValueError` for more than a model can mean, and for what might match for ever."""
    if len(patterns) > MOST_PATTERNS:
        raise ValueError(f"quantization_config names {len(patterns):,} layers")
    for pattern in patterns:
        if not pattern.startswith("re:"):
            continue
        if _REPEATED_GROUP.search(pattern) or len(_REPEATS.findall(pattern)) > _MOST_REPEATS:
            raise ValueError(f"quantization_config has an expression that repeats: {pattern[:64]}")
        try:
            re.compile(pattern.removeprefix("re:"))
        except re.error as error:
            raise ValueError(f"quantization_config: {pattern[:64]}: {error}") from error


def _label(scheme: QuantizationScheme) -> str:
    weights = scheme.weights
    shared = f"-g{weights.group_size}" if weights.strategy == GROUP else ""
    return f"{weights.type}{weights.num_bits}{shared}"


def _part_names(scheme: QuantizationScheme) -> tuple[str, ...]:
    names: tuple[str, ...] = BaseCompressor.get_value_from_registry(
        scheme.format
    ).compression_param_names(scheme)
    return names


def _shape(parts: Mapping[str, StoredTensor]) -> tuple[int, ...]:
    """That of the weight; empty for what is none. Raises as `read_whole`."""
    own = parts.get("weight_shape")
    if own is None:
        return parts["weight"].shape
    if own.shape != (2,) or own.dtype not in ("I64", "I32"):
        return ()
    return tuple(int(each) for each in read_whole(own))


def _together(
    parts: Mapping[str, StoredTensor], shape: tuple[int, ...], scheme: QuantizationScheme
) -> bool:
    """Whether the parts are of one weight of `shape`, quantized so."""
    if len(shape) != 2 or min(shape) < 1:
        return False
    return all(
        parts[name].shape in shapes and parts[name].dtype in dtypes
        for name, shapes, dtypes in _expected(shape, scheme)
    )


_Shapes = tuple[tuple[int, ...], ...]


def _expected(
    shape: tuple[int, ...], scheme: QuantizationScheme
) -> Iterator[tuple[str, _Shapes, tuple[str, ...]]]:
    """Each part by name, with the shapes and number formats that it can have."""
    rows, columns = shape
    weights = scheme.weights
    scales = _scale_shapes(shape, scheme)
    yield "weight_scale", scales, FLOAT_TYPES
    is_packed = scheme.format == PACKED
    if is_packed:
        words = _words(columns, weights.num_bits)
        yield "weight_packed", ((rows, words),), ("I32",)
    else:
        yield "weight", (shape,), (QUANTIZED_TYPES[weights.type, weights.num_bits],)
    if not weights.symmetric:
        if is_packed and weights.strategy in (GROUP, CHANNEL):
            words = _words(rows, weights.num_bits)
            yield "weight_zero_point", tuple((words, each[1]) for each in scales), ("I32",)
        else:
            yield "weight_zero_point", scales, ("I8", "F8_E4M3", *FLOAT_TYPES)


def _words(values: int, bits: int) -> int:
    return -(-values * bits // WORD_BITS)


def _scale_shapes(shape: tuple[int, ...], scheme: QuantizationScheme) -> _Shapes:
    rows, columns = shape
    weights = scheme.weights
    match weights.strategy:
        case "tensor":
            return ((1,), ())
        case "channel":
            return ((rows, 1),)
        case "group":
            return ((rows, -(-columns // weights.group_size)),)
        case _:
            high, wide = weights.block_structure
            return ((-(-rows // high), -(-columns // wide)),)
