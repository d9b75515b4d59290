"""How exactly keys and values behind a window are kept, by what was asked for."""

from __future__ import annotations

from kakeya.v1 import placement_pb2 as wire
from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.codecs.tile import bits_a_value
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.fleet.placement.packing import Packing

CODECS: dict[wire.KvQuality.ValueType, str] = {
    wire.KV_QUALITY_UNSPECIFIED: "",
    wire.KV_QUALITY_LOSSLESS: "",
    wire.KV_QUALITY_HIGH: "kvarn4",
    wire.KV_QUALITY_ECONOMY: "kvarn3",
}
"""Those of the fewest nats at their bits; empty where numbers stay as they lie."""
QUALITIES = {"": wire.KV_QUALITY_LOSSLESS} | {
    codec: quality for quality, codec in CODECS.items() if codec
}
DIVERGENCE_NATS = {"kvarn4": 0.0016, "kvarn3": 0.0073}
"""Means of `scripts/eval/packed_quality.py`, in benchmarks/packed_quality.json."""
MEASURED_ON = "SmolLM2-135M-Instruct"
_HEAD_SIZE = 64
"""The smallest of models that people have: larger heads have fewer scales a number."""


def codec_of(restorer: wire.Restorer) -> str:
    """Names what packs; empty for nothing. Raises `BadParameters`."""
    if restorer.quality not in CODECS:
        raise BadParameters(
            f"restorer.quality is {restorer.quality}; it must be 1 (lossless), 2 (high) or"
            " 3 (economy)",
            field="restorer.quality",
        )
    codec = CODECS[restorer.quality]
    if codec and restorer.kind == wire.RESTORER_KIND_PROJECTION:
        raise BadParameters(
            "the restorer projection keeps what its map makes, not packed keys and values; leave"
            " restorer.quality empty, or take the restorer archive",
            field="restorer.quality",
        )
    return codec


def packing_of(codec: str) -> Packing | None:
    """What the planner is told of a codec of `CODECS`."""
    if not codec:
        return None
    found = codec_named(codec)
    bits = max(bits_a_value(each, _HEAD_SIZE) for each in (found.keys, found.values))
    quality = wire.KvQuality.Name(QUALITIES[codec]).removeprefix("KV_QUALITY_").lower()
    return Packing(codec, quality, bits, DIVERGENCE_NATS[codec], MEASURED_ON)
