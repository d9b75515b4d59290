"""Amounts of memory as people write them, and openings of archives as they travel."""

from __future__ import annotations

from typing import Any

import pytest

from kakeya.v1 import archive_pb2 as wire
from kakeya.v1 import placement_pb2, tensor_pb2
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import RestorerRefused
from kakeya_fleet.node.config.role_spec import BadRoleSpec, archive_bytes
from kakeya_fleet.node.roles.archive.opening import Opening, opening_from_wire, opening_to_wire
from tests.support import evicted_stores

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)


@pytest.fixture
def shape() -> EvictedShape:
    return evicted_stores.small_shape()


@pytest.mark.parametrize(
    ("amount", "expected"),
    [("512MiB", 512 << 20), ("2GiB", 2 << 30), ("1048576", 1 << 20), ("1 TiB", 1 << 40)],
)
def test_amounts_are_whole_numbers_with_binary_units(amount: str, expected: int) -> None:
    assert archive_bytes(amount) == expected


@pytest.mark.parametrize(
    "amount", ["", "lots", "512MB", "512mib", "-1GiB", "1.5GiB", "1e9", "0", "64KiB", "٣MiB"]
)
def test_other_amounts_are_refused_with_an_example(amount: str) -> None:
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


@pytest.mark.parametrize(
    "change",
    [
        {"kind": placement_pb2.RESTORER_KIND_IDENTITY},
        {"kind": 9},
        {"dtype": tensor_pb2.TENSOR_DTYPE_INT8},
        {"groups": []},
        {"groups": [wire.EvictedLayers(layers=[0], kv_heads=2, query_heads=3, head_dim=8)]},
        {"groups": [wire.EvictedLayers(layers=[0], kv_heads=0, query_heads=0, head_dim=8)]},
        {"groups": [wire.EvictedLayers(layers=[1, 0], kv_heads=1, query_heads=1, head_dim=8)]},
        {"groups": [wire.EvictedLayers(layers=[0], kv_heads=1, query_heads=1, head_dim=1 << 20)]},
        {"groups": 2 * [wire.EvictedLayers(layers=[0], kv_heads=1, query_heads=1, head_dim=8)]},
        {"window_tokens": 0},
        {"context_length": 0},
        {"context_length": 1 << 40},
        {"expected_positions": 1 << 20},
        {"vector_width": 256},
        {"lease_seconds": float("nan")},
        {"model_id": "x" * 1000},
    ],
)
def test_sizes_that_cannot_be_are_refused(shape: EvictedShape, change: dict[str, Any]) -> None:
    good = opening_to_wire(Opening(ARCHIVE, shape, "v"))
    fields = {field.name: value for field, value in good.ListFields()} | change
    with pytest.raises(RestorerRefused):
        opening_from_wire(wire.OpenArchiveRequest(**fields))
