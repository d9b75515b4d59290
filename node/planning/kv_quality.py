"""How exactly keys and values behind a window are kept, by what was asked for."""

from __future__ import annotations

from kakeya.v1 import placement_pb2 as wire
from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.fleet.placement.codec_ladder import (
    FIRST,
    LADDER,
    NOTHING,
    Divergence,
    PackedQuality,
)
from kakeya_fleet.fleet.placement.packing import Packing

QUALITIES: dict[wire.KvQuality.ValueType, PackedQuality | None] = {
    wire.KV_QUALITY_UNSPECIFIED: None,
    wire.KV_QUALITY_LOSSLESS: None,
    wire.KV_QUALITY_HIGH: PackedQuality.HIGH,
    wire.KV_QUALITY_ECONOMY: PackedQuality.ECONOMY,
}
"""What a request may ask for; None where numbers stay as they lie."""
CODECS = {
    number: "" if quality is None else FIRST[quality] for number, quality in QUALITIES.items()
}
"""Those that qualities begin with, of the fewest nats at their bits; empty for none."""
DIVERGENCE_NATS = {
    "int8": 0.0002,
    "kvarn4": 0.0015,
    "kvarn4v3": 0.0026,
    "kvarn3": 0.0070,
    "kvarn3v2": 0.0136,
    "kvarn2": 0.0574,
}
"""Means of `scripts/eval/packed_quality.py`, in benchmarks/packed_quality.json."""
MEASURED_ON = "SmolLM2-135M-Instruct"
_HEAD_SIZE = 64
"""The smallest of models that people have: larger heads have fewer scales a number."""


def quality_of(restorer: wire.Restorer) -> PackedQuality | None:
    """How exactly is asked for; None for lossless. Raises `BadParameters`."""
    if restorer.quality not in QUALITIES:
        raise BadParameters(
            f"restorer.quality is {restorer.quality}; it must be 1 (lossless), 2 (high) or"
            " 3 (economy)",
            field="restorer.quality",
        )
    quality = QUALITIES[restorer.quality]
    if quality is not None and restorer.kind == wire.RESTORER_KIND_PROJECTION:
        raise BadParameters(
            "the restorer projection keeps what its map makes, not packed keys and values; leave"
            " restorer.quality empty, or take the restorer archive",
            field="restorer.quality",
        )
    return quality


def quality_when_short_of(restorer: wire.Restorer) -> PackedQuality | None:
    """How exactly is enough where memory is short; None for no less than was asked for.

    Raises `BadParameters`.
    """
    number = restorer.quality_when_short
    if number not in QUALITIES:
        raise BadParameters(
            f"restorer.quality_when_short is {number}; it must be 1 (lossless), 2 (high) or"
            " 3 (economy)",
            field="restorer.quality_when_short",
        )
    when_short, quality = QUALITIES[number], quality_of(restorer)
    if when_short is not None and when_short in (quality, PackedQuality.HIGH) and quality:
        raise BadParameters(
            f"restorer.quality_when_short is {when_short.value}, no less exact than"
            f" restorer.quality ({quality.value}): leave it empty, or ask for more at first",
            field="restorer.quality_when_short",
        )
    return when_short


def pinned_of(restorer: wire.Restorer) -> str:
    """The codec that a request names, as a session has that goes on elsewhere; empty for none.

    Raises `BadParameters` for one that no quality has.
    """
    codec = restorer.codec
    if not codec:
        return ""
    if codec not in LADDER:
        raise BadParameters(
            f"restorer.codec is {codec[:32]!r}; it must be {', '.join(LADDER)}, or empty",
            field="restorer.codec",
        )
    if quality_of(restorer) is None:
        raise BadParameters(
            "restorer.codec names what packs, and restorer.quality says lossless: nothing is"
            " packed; leave restorer.codec empty, or ask for 2 (high) or 3 (economy)",
            field="restorer.codec",
        )
    return codec


def quality_to_wire(quality: PackedQuality | None) -> wire.KvQuality.ValueType:
    """A quality's number."""
    if quality is None:
        return wire.KV_QUALITY_LOSSLESS
    return wire.KvQuality.Value(f"KV_QUALITY_{quality.name}")


def packing_of(codec: str, quality: PackedQuality, measured: Divergence = NOTHING) -> Packing:
    """What the planner is told of a codec of the ladder, and what was `measured` here of it."""
    return Packing(
        codec,
        quality.value,
        bits_of(codec),
        DIVERGENCE_NATS[codec],
        MEASURED_ON,
        measured if measured.tells else None,
    )


def bits_of(codec: str) -> float:
    """Bits a number at most, scales included, for heads of 64 channels and more."""
    return codec_named(codec).bits_a_value(_HEAD_SIZE)
