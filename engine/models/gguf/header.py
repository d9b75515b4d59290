"""The header of a GGUF file, read with strict bounds: nothing of it is taken on trust.

What a count, a length or an offset claims is compared with the file's size and with fixed
limits before memory is taken for it. What is not as it must be is refused by name.
Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from kakeya_fleet.engine.errors import ArchitectureUnsupported, GgufInvalid
from kakeya_fleet.engine.models.gguf.header_bytes import HeaderBytes
from kakeya_fleet.engine.models.gguf.header_values import Value, read_value
from kakeya_fleet.engine.models.gguf.tensor_types import OTHER_TYPES, TENSOR_TYPES, TensorType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_TENSORS = 1 << 16
MOST_ENTRIES = 1 << 16
MOST_DIMENSIONS = 4
NAME_BYTES = 127
"""Of a tensor; ggml's own limit is 63."""
KEY_BYTES = 1024
DEFAULT_ALIGNMENT = 32
MOST_ALIGNMENT = 1 << 16
MOST_VALUES = 1 << 40
"""Numbers of one tensor."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: its shape, outermost dimension first, and its bytes, `start` in the file."""

    name: str
    shape: tuple[int, ...]
    kind: TensorType
    start: int
    byte_count: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a file says of itself, checked; `tensors` by name, in the order of their bytes."""

    path: Path
    metadata: dict[str, Value]
    tensors: dict[str, GgufTensor]


def read_header(path: Path) -> GgufHeader:
    """The header of the file at `path`.

    Raises `GgufInvalid` for one that breaks the format or its bounds, or breaks off, and
    `ArchitectureUnsupported` for tensors of a type that is not read.
    """
    try:
        with path.open("rb") as file:
            source = HeaderBytes(file, path)
            return _read(source, path)
    except OSError as error:
        raise GgufInvalid(f"{path} cannot be read: {error}", path=str(path)) from error


def _read(source: HeaderBytes, path: Path) -> GgufHeader:
    if source.take(4) != MAGIC:
        raise source.invalid("does not begin with GGUF")
    version = source.u32()
    if version not in VERSIONS:
        if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
            raise source.invalid("is big-endian; convert it for this machine")
        raise source.invalid(f"is of version {version}, and 2 and 3 are read")
    tensor_count = source.count("tensors", MOST_TENSORS)
    entry_count = source.count("entries of metadata", MOST_ENTRIES)
    metadata: dict[str, Value] = {}
    for _ in range(entry_count):
        key = source.text(KEY_BYTES, "a key")
        if key in metadata:
            raise source.invalid(f"has {key} twice")
        metadata[key] = read_value(source, key)
    tensors: dict[str, GgufTensor] = {}
    for _ in range(tensor_count):
        tensor = _tensor(source)
        if tensor.name in tensors:
            raise source.invalid(f"has the tensor {tensor.name} twice")
        tensors[tensor.name] = tensor
    start = _aligned(source, metadata)
    return GgufHeader(path, metadata, _placed(source, tensors, start))


def _tensor(source: HeaderBytes) -> GgufTensor:
    """One entry of the table of tensors; `start` counts from the first tensor's byte."""
    name = source.text(NAME_BYTES, "a tensor's name")
    dimension_count = source.u32()
    if not 1 <= dimension_count <= MOST_DIMENSIONS:
        raise source.invalid(f"gives {name} {dimension_count} dimensions, and 1 to 4 are possible")
    sizes = tuple(source.u64() for _ in range(dimension_count))
    if not all(sizes) or math.prod(sizes) > MOST_VALUES:
        raise source.invalid(f"gives {name} the impossible shape {sizes}")
    kind = _kind(source, name)
    start = source.u64()
    # The first dimension is that of a row, whose values lie side by side.
    if sizes[0] % kind.block_values:
        raise source.invalid(
            f"has {name} in rows of {sizes[0]} values, no multiple of {kind.name}'s"
            f" {kind.block_values}"
        )
    byte_count = math.prod(sizes[1:]) * kind.row_bytes(sizes[0])
    return GgufTensor(name, tuple(reversed(sizes)), kind, start, byte_count)


def _kind(source: HeaderBytes, name: str) -> TensorType:
    number = source.u32()
    kind = TENSOR_TYPES.get(number)
    if kind is not None:
        return kind
    other = OTHER_TYPES.get(number)
    if other is None:
        raise source.invalid(f"has {name} in type {number}, which there is not")
    read = ", ".join(each.name for each in TENSOR_TYPES.values())
    raise ArchitectureUnsupported(
        f"{source.path} has {name} in {other}, and {read} are read; take a file of one of them,"
        " or make one with llama-quantize",
        architecture=other,
        path=str(source.path),
    )


def _aligned(source: HeaderBytes, metadata: dict[str, Value]) -> int:
    """Where the tensors' bytes begin."""
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if (
        not isinstance(alignment, int)
        or not 1 <= alignment <= MOST_ALIGNMENT
        or alignment & (alignment - 1)
    ):
        raise source.invalid(f"has the alignment {str(alignment)[:32]}, which is no power of two")
    return -(-source.position // alignment) * alignment


def _placed(
    source: HeaderBytes, tensors: dict[str, GgufTensor], start: int
) -> dict[str, GgufTensor]:
    """The tensors with their places in the file, none beyond it and none over another."""
    placed: dict[str, GgufTensor] = {}
    end, before = start, ""
    for tensor in sorted(tensors.values(), key=lambda each: (each.start, each.name)):
        begin = start + tensor.start
        if begin < end:
            raise source.invalid(f"has {tensor.name} over the bytes of {before}")
        end, before = begin + tensor.byte_count, tensor.name
        if end > source.size:
            raise source.invalid(
                f"breaks off within {tensor.name}: {end - source.size:,} bytes are missing;"
                " fetch it again"
            )
        placed[tensor.name] = GgufTensor(
            tensor.name, tensor.shape, tensor.kind, begin, tensor.byte_count
        )
    return placed
