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
from kakeya_fleet.fleet.placement.codec_ladder import (
    FIRST,
    LADDER,
    TOLERANCE_NATS,
    Divergence,
    PackedQuality,
)
from kakeya_fleet.fleet.placement.plan import KvStrategy
from kakeya_fleet.node.planning.kv_quality import (
    CODECS,
    DIVERGENCE_NATS,
    MEASURED_ON,
    QUALITIES,
    packing_of,
    pinned_of,
    quality_of,
    quality_to_wire,
    quality_when_short_of,
)
from kakeya_fleet.node.planning.plan_wire import check_when_short

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
MEASURED = BENCHMARKS / "packed_quality.json"


def test_every_quality_has_a_codec_that_is_known() -> None:
    assert set(CODECS) == set(wire.KvQuality.values())
    assert {codec for codec in CODECS.values() if codec} <= KNOWN.keys()
    for quality, codec in CODECS.items():
        asked = quality_of(wire.Restorer(quality=quality))
        assert asked is QUALITIES[quality]
        assert (asked is None) is (not codec)
        if asked is not None:
            assert FIRST[asked] == codec
            assert quality_to_wire(asked) == quality
    assert quality_to_wire(None) == wire.KV_QUALITY_LOSSLESS


def test_the_ladder_goes_from_most_bits_to_fewest() -> None:
    bits = [packing_of(codec, PackedQuality.HIGH).bits for codec in LADDER]
    assert bits == [8.5, 4.75, 4.25, 3.75, 3.25, 2.75]
    assert set(LADDER) <= KNOWN.keys()
    assert DIVERGENCE_NATS.keys() == set(LADDER)
    for quality, codec in FIRST.items():
        assert 2.5 < TOLERANCE_NATS[quality] / DIVERGENCE_NATS[codec] < 3.5


@pytest.mark.parametrize(
    "asked",
    [
        wire.Restorer(quality=wire.KV_QUALITY_HIGH, codec="lossless"),
        wire.Restorer(quality=wire.KV_QUALITY_HIGH, codec="kivi2"),
        wire.Restorer(quality=wire.KV_QUALITY_LOSSLESS, codec="kvarn4"),
        wire.Restorer(codec="kvarn4"),
    ],
)
def test_a_codec_that_no_quality_has_cannot_be_named(asked: wire.Restorer) -> None:
    with pytest.raises(BadParameters, match=r"restorer\.codec") as refused:
        pinned_of(asked)
    assert refused.value.metadata == {"field": "restorer.codec"}


def test_a_codec_of_the_ladder_can_be_named() -> None:
    for codec in LADDER:
        assert pinned_of(wire.Restorer(quality=wire.KV_QUALITY_ECONOMY, codec=codec)) == codec
    assert pinned_of(wire.Restorer(quality=wire.KV_QUALITY_HIGH)) == ""


def test_plans_say_where_it_was_measured() -> None:
    published = packing_of("kvarn4", PackedQuality.HIGH)
    assert f"On {MEASURED_ON} that moved" in published.reason("bfloat16")
    few = packing_of("kvarn4", PackedQuality.HIGH, Divergence(15, 0.0021, 0.0))
    assert few == published
    here = packing_of("kvarn4", PackedQuality.HIGH, Divergence(96, 0.0021, 0.0))
    assert "Measured here on 96 positions of this model" in here.reason("bfloat16")
    assert "0.0021 nats, 0.0021 at most" in here.reason("bfloat16")
    assert MEASURED_ON not in here.reason("bfloat16")


def test_what_is_said_of_them_was_measured() -> None:
    report = json.loads(MEASURED.read_text("utf-8"))
    assert MEASURED_ON.lower().startswith(report["model"].lower()[:7])
    assert tuple(DIVERGENCE_NATS) == LADDER
    for codec, nats in DIVERGENCE_NATS.items():
        measured = report["of_codecs"][codec]
        assert round(measured["divergence_nats"], 4) == nats
        told = packing_of(codec, PackedQuality.HIGH)
        assert told.bits == measured["bits_a_value"]
        assert told.divergence_nats == nats


def test_the_planner_counts_in_the_engines_tiles() -> None:
    assert packing.TILE == tile.TILE


@pytest.mark.parametrize(
    "asked",
    [
        wire.Restorer(quality=9),  # type: ignore[arg-type]  # newer than this node
        wire.Restorer(kind=wire.RESTORER_KIND_PROJECTION, quality=wire.KV_QUALITY_HIGH),
    ],
)
def test_what_cannot_be_is_refused(asked: wire.Restorer) -> None:
    with pytest.raises(BadParameters, match=r"restorer\.quality") as refused:
        quality_of(asked)
    assert refused.value.metadata == {"field": "restorer.quality"}


@pytest.mark.parametrize(
    ("quality", "when_short", "found"),
    [
        (wire.KV_QUALITY_UNSPECIFIED, wire.KV_QUALITY_UNSPECIFIED, None),
        (wire.KV_QUALITY_HIGH, wire.KV_QUALITY_LOSSLESS, None),
        (wire.KV_QUALITY_UNSPECIFIED, wire.KV_QUALITY_HIGH, PackedQuality.HIGH),
        (wire.KV_QUALITY_LOSSLESS, wire.KV_QUALITY_ECONOMY, PackedQuality.ECONOMY),
        (wire.KV_QUALITY_HIGH, wire.KV_QUALITY_ECONOMY, PackedQuality.ECONOMY),
    ],
)
def test_short_of_memory_less_is_enough(
    quality: wire.KvQuality.ValueType,
    when_short: wire.KvQuality.ValueType,
    found: PackedQuality | None,
) -> None:
    asked = wire.Restorer(quality=quality, quality_when_short=when_short)
    assert quality_when_short_of(asked) is found


@pytest.mark.parametrize(
    ("quality", "when_short"),
    [
        (wire.KV_QUALITY_HIGH, wire.KV_QUALITY_HIGH),
        (wire.KV_QUALITY_ECONOMY, wire.KV_QUALITY_ECONOMY),
        (wire.KV_QUALITY_ECONOMY, wire.KV_QUALITY_HIGH),
        (wire.KV_QUALITY_HIGH, 9),  # newer than this node
    ],
)
def test_no_more_than_at_first_can_be_asked_for_then(
    quality: wire.KvQuality.ValueType, when_short: int
) -> None:
    asked = wire.Restorer(quality=quality, quality_when_short=when_short)  # type: ignore[arg-type]
    with pytest.raises(BadParameters, match=r"quality_when_short") as refused:
        quality_when_short_of(asked)
    assert refused.value.metadata["field"] == "restorer.quality_when_short"


@pytest.mark.parametrize("strategy", [None, KvStrategy.SINK_WINDOW, KvStrategy.RESTORED])
def test_only_what_keeps_all_by_itself_is_packed_then(strategy: KvStrategy | None) -> None:
    check_when_short(PackedQuality.HIGH, KvStrategy.FULL)
    check_when_short(None, strategy)
    with pytest.raises(BadParameters, match="full"):
        check_when_short(PackedQuality.HIGH, strategy)
