"""Which codec of the ladder a quality has for one model, by what was measured there.

A codec whose divergence is above the quality's tolerance for certain gives way to one of more
bits, as soon as there are samples enough. One of fewer bits is taken once it is settled, well below
the tolerance: few texts flatter one that is bad on others, and to wait costs memory alone. The two
bounds lie a factor of two apart, and who went to more bits goes back only when it is reset. So a
choice goes up, or down, and never to and fro.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kakeya_fleet.fleet.placement.codec_ladder import (
    FIRST,
    LADDER,
    LEAST_SAMPLES,
    NOTHING,
    SETTLED_SAMPLES,
    TOLERANCE_NATS,
    Divergence,
    PackedQuality,
)


@dataclass(frozen=True, slots=True)
class Standing:
    """The codec that a quality has for a model now.

    `is_raised` once it got more bits than it had: it gets fewer no more.
    """

    codec: str
    is_raised: bool = False


@dataclass(frozen=True, slots=True)
class CodecDecision:
    """Where a quality stands, whether that is another codec than before, and why."""

    standing: Standing
    moved: bool
    reasons: tuple[str, ...]


def first_standing(quality: PackedQuality) -> Standing:
    """Before anything was measured."""
    return Standing(FIRST[quality])


def decided(
    quality: PackedQuality, standing: Standing, measured: Mapping[str, Divergence]
) -> CodecDecision:
    """One step at most: the same codec, the next one up, or the next one down."""
    tolerance = TOLERANCE_NATS[quality]
    place = LADDER.index(standing.codec)
    own = measured.get(standing.codec, NOTHING)
    if own.tells and own.least > tolerance:
        return _too_far(standing, own, tolerance)
    below = _below(standing)
    if below:
        found = measured.get(below, NOTHING)
        if found.is_settled and found.most < tolerance / 2:
            reasons = (
                found.sentence(below),
                f"That is below {tolerance / 2:g}, half of what {quality} bears, for certain: "
                f"fewer bits do.",
            )
            return CodecDecision(Standing(LADDER[place + 1]), moved=True, reasons=reasons)
    return CodecDecision(standing, moved=False, reasons=_kept(quality, standing, own, measured))


def wanted(standing: Standing, measured: Mapping[str, Divergence]) -> tuple[str, ...]:
    """The codecs to measure next, those with the fewest samples first; none once it is settled.

    That in use, and the one below it where it could be taken.
    """
    codecs = filter(None, (standing.codec, _below(standing)))
    open_ones = [each for each in codecs if not measured.get(each, NOTHING).is_settled]
    return tuple(sorted(open_ones, key=lambda codec: measured.get(codec, NOTHING).count))


def _below(standing: Standing) -> str:
    """The next codec of fewer bits that may be taken; empty for none."""
    place = LADDER.index(standing.codec) + 1
    return "" if standing.is_raised or place == len(LADDER) else LADDER[place]


def _too_far(standing: Standing, own: Divergence, tolerance: float) -> CodecDecision:
    place = LADDER.index(standing.codec)
    measured = own.sentence(standing.codec)
    if not place:
        reasons = (
            measured,
            f"That is above {tolerance:g} for certain, and nothing packs with more bits: "
            "open sessions with --kv-quality lossless where it matters.",
        )
        return CodecDecision(standing, moved=False, reasons=reasons)
    reasons = (measured, f"That is above {tolerance:g} for certain: more bits are taken.")
    return CodecDecision(Standing(LADDER[place - 1], is_raised=True), moved=True, reasons=reasons)


def _kept(
    quality: PackedQuality,
    standing: Standing,
    own: Divergence,
    measured: Mapping[str, Divergence],
) -> tuple[str, ...]:
    """Why a codec stays."""
    tolerance = TOLERANCE_NATS[quality]
    if own.tells:
        how = "is within" if own.most <= tolerance else "may be within"
        first = f"{own.sentence(standing.codec)} That {how} the {tolerance:g} that {quality} bears."
    else:
        first = (
            f"{standing.codec} was measured on {own.count} positions of this model; from "
            f"{LEAST_SAMPLES} on it is judged by them."
        )
    below = _below(standing)
    found = measured.get(below, NOTHING)
    if not below or not found.tells:
        return (first,)
    needed = f"To take it, {tolerance / 2:g} at most is needed on {SETTLED_SAMPLES} positions."
    return (first, f"{found.sentence(below)} {needed}")
