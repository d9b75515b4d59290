"""Whether there is room on the disks that a node writes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, ok
from kakeya_fleet.fleet.quantities import bytes_text

CHECK = "disk"

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Need:
    """What a place is for, in words, and below how many free bytes it is scarce, and too few."""

    words: str
    scarce_bytes: int
    least_bytes: int
    mend: str


STATE = Need(
    "the state directory", 256 * MIB, 16 * MIB, "Free the disk, or join with --state elsewhere."
)
"""A node writes some KiB; without them it cannot refute that it is dead, nor start again."""
MODELS = Need(
    "the model cache",
    8 * GIB,
    GIB,
    "Free the disk (`hf cache delete`), or set HF_HOME to a larger one.",
)
"""A small model is some GiB; one in a local folder needs no cache, so it is never a problem."""


@dataclass(frozen=True, slots=True)
class Place:
    """A directory with the bytes of its disk; whether this user can write there."""

    need: Need
    path: str
    free_bytes: int
    total_bytes: int
    is_writable: bool


def storage(places: Sequence[Place]) -> list[Finding]:
    """A line for each place."""
    return [_of(place) for place in places]


def _of(place: Place) -> Finding:
    need = place.need
    if not place.is_writable:
        return Finding(
            CHECK,
            Level.PROBLEM if need is STATE else Level.WARNING,
            f"{need.words} {place.path} cannot be written",
            "It belongs to another user, or its disk is mounted read-only.",
            need.mend,
        )
    free = f"{bytes_text(place.free_bytes)} of {bytes_text(place.total_bytes)} are free"
    if place.free_bytes < need.scarce_bytes:
        is_too_few = place.free_bytes < need.least_bytes and need is STATE
        return Finding(
            CHECK,
            Level.PROBLEM if is_too_few else Level.WARNING,
            f"little room for {need.words}: {free}",
            f"{place.path} is on that disk.",
            need.mend,
        )
    return ok(CHECK, f"{need.words} {place.path}: {free}")
