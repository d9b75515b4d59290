"""Qualities of evicted keys and values, their codecs, and what was measured of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kakeya.v1 import placement_pb2 as wire
from kakeya_fleet.engine.codecs import tile
from kakeya_fleet.engine.codecs.known import CODECS as KNOWN
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.fleet.placement import packing
from kakeya_fleet.node.planning.kv_quality import (
    CODECS,
    DIVERGENCE_NATS,
    MEASURED_ON,
    codec_of,
    packing_of,
)

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
MEASURED, OF_CODECS = BENCHMARKS / "packed_quality.json", BENCHMARKS / "codec_quality.json"


def test_every_quality_has_a_codec_that_is_known() -> None:
    assert set(CODECS) == set(wire.KvQuality.values())
    assert {codec for codec in CODECS.values() if codec} <= KNOWN.keys()
    for quality, codec in CODECS.items():
        assert codec_of(wire.Restorer(quality=quality)) == codec


def test_what_is_said_of_them_was_measured() -> None:
    report, of_codecs = (json.loads(path.read_text("utf-8")) for path in (MEASURED, OF_CODECS))
    assert MEASURED_ON.lower().startswith(report["model"].lower()[:7])
    for codec, nats in DIVERGENCE_NATS.items():
        measured = report["of_codecs"][codec]
        assert round(measured["divergence_nats"], 4) == nats
        told = packing_of(codec)
        assert told is not None
        assert told.bits == of_codecs["of_codecs"][codec]["bits_a_value"]
        assert told.divergence_nats == nats


def test_the_planner_counts_in_the_engines_tiles() -> None:
    assert packing.TILE == tile.TILE


def test_nothing_is_packed_without_a_codec() -> None:
    assert packing_of("") is None


@pytest.mark.parametrize(
    "asked",
    [
        wire.Restorer(quality=9),  # type: ignore[arg-type]  # newer than this node
        wire.Restorer(kind=wire.RESTORER_KIND_PROJECTION, quality=wire.KV_QUALITY_HIGH),
    ],
)
def test_what_cannot_be_is_refused(asked: wire.Restorer) -> None:
    with pytest.raises(BadParameters, match=r"restorer\.quality") as refused:
        codec_of(asked)
    assert refused.value.metadata == {"field": "restorer.quality"}
