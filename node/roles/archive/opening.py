"""What an archive is opened for: values, and their way over the wire."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kakeya.v1 import archive_pb2 as wire
from kakeya.v1 import placement_pb2, tensor_pb2
from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, LayerGroup
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import RestorerRefused

MAX_LAYERS = 1024
MAX_HEADS = 256
MAX_HEAD_DIM = 1024
MAX_KEY_WIDTH = 1 << 14
"""Values of a layer's keys at a position: 128 heads of 128. To find how products of a shape round
takes 8 bytes a value and position of 2,816, once and one shape at a time: 370 MB."""
MAX_WIDTH = 65_536
MAX_POSITIONS = 1 << 31
MAX_NAME_CHARACTERS = 256

KINDS: dict[RestorerKind, placement_pb2.RestorerKind.ValueType] = {
    RestorerKind.ARCHIVE: placement_pb2.RESTORER_KIND_ARCHIVE,
    RestorerKind.PROJECTION: placement_pb2.RESTORER_KIND_PROJECTION,
    RestorerKind.IDENTITY: placement_pb2.RESTORER_KIND_IDENTITY,
}
_DTYPES: dict[str, tensor_pb2.TensorDtype.ValueType] = {
    "float32": tensor_pb2.TENSOR_DTYPE_FLOAT32,
    "bfloat16": tensor_pb2.TENSOR_DTYPE_BFLOAT16,
}


@dataclass(frozen=True, slots=True)
class Opening:
    """One session's archive as it is asked for.

    `verifier_digest` is that of the verifier's weights; `expected_positions` are
    evicted ones for which there must be room now, 0 when nobody knows.
    `lease_seconds` without use end it, 0 for the archive's own choice. It keeps the
    positions from `first_position` on.
    """

    restorer: RestorerSpec
    shape: EvictedShape
    verifier_digest: str
    expected_positions: int = 0
    lease_seconds: float = 0.0
    first_position: int = 0


def opening_to_wire(opening: Opening) -> wire.OpenArchiveRequest:
    """The request of an opening."""
    restorer, shape = opening.restorer, opening.shape
    return wire.OpenArchiveRequest(
        kind=KINDS[restorer.kind],
        model_id=restorer.model_id,
        restorer_digest=restorer.digest,
        verifier_digest=opening.verifier_digest,
        groups=[
            wire.EvictedLayers(
                layers=group.layers,
                kv_heads=group.shape.kv_heads,
                query_heads=group.shape.kv_heads * group.shape.groups,
                head_dim=group.shape.head_dim,
            )
            for group in shape.groups
        ],
        dtype=_DTYPES[shape.dtype],
        sink_tokens=shape.sink,
        window_tokens=shape.window,
        context_length=shape.context_length,
        vector_width=shape.width,
        expected_positions=opening.expected_positions,
        lease_seconds=opening.lease_seconds,
        first_position=opening.first_position,
        codec=shape.codec,
        codec_version=shape.kv_codec.version if shape.kv_codec is not None else 0,
    )


def opening_from_wire(request: wire.OpenArchiveRequest) -> Opening:
    """The opening of a request. Raises `RestorerRefused` for sizes that cannot be."""
    kind = _kind(request.kind)
    dtype = next((name for name, number in _DTYPES.items() if number == request.dtype), None)
    _require(dtype is not None, f"keys and values of format {request.dtype}", "dtype")
    groups = tuple(_group(message) for message in request.groups)
    layers = [layer for group in groups for layer in group.layers]
    _require(0 < len(layers) <= MAX_LAYERS, f"{len(layers)} layers", "groups")
    _require(len(set(layers)) == len(layers), "a layer that is given twice", "groups")
    _require(
        0 < request.context_length <= MAX_POSITIONS,
        f"{request.context_length} positions",
        "context_length",
    )
    # A window may be wider than the model has positions: nothing is evicted then.
    _require(request.window_tokens >= 1, "a window of no position", "window_tokens")
    _require(
        math.isfinite(request.lease_seconds) and request.lease_seconds >= 0.0,
        f"a lease of {request.lease_seconds} s",
        "lease_seconds",
    )
    _require(
        0 <= request.expected_positions <= request.context_length,
        f"{request.expected_positions} expected positions",
        "expected_positions",
    )
    _require(
        request.first_position < request.context_length,
        f"positions from {request.first_position} on",
        "first_position",
    )
    names = (request.model_id, request.restorer_digest, request.verifier_digest)
    _require(
        all(len(name) <= MAX_NAME_CHARACTERS for name in names), "a name that long", "model_id"
    )
    _require(all(name.isprintable() for name in names), "a name that is not printable", "model_id")
    width = request.vector_width
    _require(
        (0 < width <= MAX_WIDTH) if kind is RestorerKind.PROJECTION else width == 0,
        f"context vectors of {width} values for {kind.value}",
        "vector_width",
    )
    if request.codec:
        _check_codec(request, kind, groups)
    return Opening(
        restorer=RestorerSpec(
            kind, request.model_id, request.restorer_digest, width, request.codec
        ),
        shape=EvictedShape(
            groups=groups,
            dtype=dtype or "",
            sink=request.sink_tokens,
            window=request.window_tokens,
            context_length=request.context_length,
            width=width,
            codec=request.codec,
        ),
        verifier_digest=request.verifier_digest,
        expected_positions=request.expected_positions,
        lease_seconds=request.lease_seconds,
        first_position=request.first_position,
    )


def _check_codec(
    request: wire.OpenArchiveRequest, kind: RestorerKind, groups: Sequence[LayerGroup]
) -> None:
    """Raises `RestorerRefused` for a codec that is not known here, or that cannot pack this."""
    try:
        codec = codec_named(request.codec)
        for group in groups:
            codec.tile_bytes(group.shape.head_dim)
    except CodecRefused as refused:
        raise RestorerRefused(f"no archive can be opened: {refused}", field="codec") from refused
    _require(
        codec.version == request.codec_version,
        f"version {request.codec_version} of the codec {codec.name}, which is {codec.version} here",
        "codec_version",
    )
    _require(kind is RestorerKind.ARCHIVE, "context vectors that are packed", "codec")
    _require(
        not request.sink_tokens % TILE, f"a sink of {request.sink_tokens} in tiles", "sink_tokens"
    )


def _kind(number: int) -> RestorerKind:
    if number in (
        placement_pb2.RESTORER_KIND_UNSPECIFIED,
        placement_pb2.RESTORER_KIND_ARCHIVE,
    ):
        return RestorerKind.ARCHIVE
    if number == placement_pb2.RESTORER_KIND_PROJECTION:
        return RestorerKind.PROJECTION
    raise RestorerRefused(f"an archive keeps nothing for a restorer of kind {number}", field="kind")


def _group(message: wire.EvictedLayers) -> LayerGroup:
    kv_heads, heads, head_dim = message.kv_heads, message.query_heads, message.head_dim
    _require(
        0 < kv_heads <= heads <= MAX_HEADS and not heads % kv_heads, f"{kv_heads} heads", "groups"
    )
    _require(0 < head_dim <= MAX_HEAD_DIM, f"heads of {head_dim} values", "groups")
    _require(
        kv_heads * head_dim <= MAX_KEY_WIDTH, f"keys of {kv_heads * head_dim} values", "groups"
    )
    layers = tuple(message.layers)
    _require(layers and list(layers) == sorted(layers), "layers out of order", "groups")
    return LayerGroup(layers, AttentionLayer(kv_heads, heads // kv_heads, head_dim))


def _require(holds: object, what: str, field: str) -> None:
    if not holds:
        raise RestorerRefused(f"no archive can be opened for {what}", field=field)
