"""Amounts of memory as people write them, and openings of archives as they travel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kakeya.v1 import archive_pb2 as wire
from kakeya.v1 import placement_pb2, tensor_pb2
from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import RestorerRefused
from kakeya_fleet.node.config.role_spec import BadRoleSpec, archive_bytes
from kakeya_fleet.node.roles.archive.opening import (
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_KEY_WIDTH,
    Opening,
    opening_from_wire,
    opening_to_wire,
)
from tests.support import evicted_stores

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)


def test_amounts_are_whole_numbers_with_binary_units() -> None:
    for amount, expected in (("512MiB", 512 << 20), ("1048576", 1 << 20), ("1 TiB", 1 << 40)):
        assert archive_bytes(amount) == expected
    for amount in ("", "lots", "512MB", "512mib", "-1GiB", "1.5GiB", "1e9", "0", "64KiB", "٣MiB"):
        with pytest.raises(BadRoleSpec, match="archive=512MiB"):
            archive_bytes(amount)


def test_an_opening_survives_the_wire() -> None:
    for restorer, width in (
        (ARCHIVE, 0),
        (RestorerSpec(RestorerKind.PROJECTION, "tiny-dflash", "d" * 64, 256), 256),
    ):
        shape = evicted_stores.small_shape("bfloat16", width=width)
        opening = Opening(restorer, shape, "v" * 64, 300, 12.5)
        assert opening_from_wire(opening_to_wire(opening)) == opening


def packed(sink: int = 64) -> Opening:
    shape = replace(evicted_stores.small_shape("bfloat16", sink, head_dims=(8, 16)), codec="kvarn4")
    return Opening(RestorerSpec(RestorerKind.ARCHIVE, codec="kvarn4"), shape, "v")


def test_a_packed_opening_survives_the_wire_with_its_codecs_version() -> None:
    request = opening_to_wire(packed())
    assert (request.codec, request.codec_version) == ("kvarn4", codec_named("kvarn4").version)
    assert opening_from_wire(request) == packed()


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"codec": "kvarn5"}, "codec", "no codec 'kvarn5'; there are lossless, int8"),
        ({"codec_version": 7}, "codec_version", "version 7 of the codec kvarn4"),
        ({"sink_tokens": 4}, "sink_tokens", "a sink of 4 in tiles"),
        (
            {"kind": placement_pb2.RESTORER_KIND_PROJECTION, "vector_width": 8},
            "codec",
            "context vectors that are packed",
        ),
        (
            {"groups": [wire.EvictedLayers(layers=[0], kv_heads=1, query_heads=1, head_dim=12)]},
            "codec",
            "heads of 12 channels",
        ),
    ],
)
def test_a_codec_that_is_not_known_or_cannot_pack_is_refused_by_name(
    change: dict[str, Any], field: str, words: str
) -> None:
    known = {each.name: value for each, value in opening_to_wire(packed()).ListFields()}
    with pytest.raises(RestorerRefused, match=words) as refused:
        opening_from_wire(wire.OpenArchiveRequest(**known | change))
    assert refused.value.metadata["field"] == field


def layers(layers: list[int], kv_heads: int, query_heads: int, head_dim: int) -> wire.EvictedLayers:
    return wire.EvictedLayers(
        layers=layers, kv_heads=kv_heads, query_heads=query_heads, head_dim=head_dim
    )


WRONG: list[dict[str, Any]] = [
    {"kind": placement_pb2.RESTORER_KIND_IDENTITY},
    {"kind": 9},
    {"dtype": tensor_pb2.TENSOR_DTYPE_INT8},
    {"groups": []},
    {"groups": [layers([0], 2, 3, 8)]},
    {"groups": [layers([0], 0, 0, 8)]},
    {"groups": [layers([1, 0], 1, 1, 8)]},
    {"groups": [layers([0], 1, 1, MAX_HEAD_DIM + 1)]},
    {"groups": [layers([0], 1, MAX_HEADS + 1, 8)]},
    {"groups": [layers([0], 2, 2, MAX_KEY_WIDTH // 2 + 1)]},
    {"groups": [layers([0], 129, 129, 128)]},
    {"groups": 2 * [layers([0], 1, 1, 8)]},
    {"window_tokens": 0},
    {"context_length": 0},
    {"context_length": 1 << 40},
    {"expected_positions": 1 << 20},
    {"vector_width": 256},
    {"lease_seconds": float("nan")},
    {"model_id": "x" * 1000},
]


def test_sizes_that_cannot_be_are_refused() -> None:
    good = opening_to_wire(Opening(ARCHIVE, evicted_stores.small_shape(), "v"))
    known = {field.name: value for field, value in good.ListFields()}
    for change in WRONG:
        with pytest.raises(RestorerRefused):
            opening_from_wire(wire.OpenArchiveRequest(**known | change))
            pytest.fail(f"{change} was taken")


def test_the_widest_layer_of_all_is_taken() -> None:
    good = opening_to_wire(Opening(ARCHIVE, evicted_stores.small_shape(), "v"))
    del good.groups[:]
    good.groups.append(layers([0], 128, 256, 128))
    assert MAX_KEY_WIDTH == 128 * 128
    assert opening_from_wire(good).shape.groups[0].shape.groups == 256 // 128
