"""How far clocks are apart, and whether this one is set by others.

A node that is watched tells its own time once a second. What it told had been read before it
arrived here, and after it was asked for:

    told - arrived <= offset <= told - asked

which holds whatever the network and the other machine do, if no clock is set meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, counted, ok
from kakeya_fleet.fleet.quantities import seconds_text

CHECK = "clock"

FAR_SECONDS = 2.0
"""No clock of another machine orders anything in a fleet, but people compare times: events of
several nodes are listed by them, and so are logs."""


@dataclass(frozen=True, slots=True)
class Offset:
    """By how many seconds a peer's clock is ahead of this one: surely between `least` and `most`.

    `guess` is `least` and half a round trip: right where both ways take equally long and
    the peer told its time at once.
    """

    name: str
    least: float
    most: float
    guess: float


def offset_of(
    name: str, asked: float, told: Sequence[tuple[float, float]], round_trip: float
) -> Offset:
    """The offset of a peer that was asked at `asked` and `told` (its time, ours at arrival).

    All are seconds; `told` has one pair at least.
    """
    least = max(theirs - ours for theirs, ours in told)
    most = min(theirs - asked for theirs, _ in told)
    return Offset(name, least, max(least, most), min(least + round_trip / 2, max(least, most)))


def offsets(found: Sequence[Offset]) -> list[Finding]:
    """A line for each clock that is far from this one, and one for all others."""
    far = [each for each in found if abs(each.guess) > FAR_SECONDS]
    near = [each for each in found if each not in far]
    lines = [
        Finding(
            CHECK,
            Level.WARNING,
            f"the clock of {each.name} is {seconds_text(abs(each.guess))} "
            f"{'ahead of' if each.guess > 0 else 'behind'} this one",
            f"It told its time, and is {_range(each)}; one of the two clocks is not set by NTP.",
            "Have both machines set their clocks by NTP (`timedatectl set-ntp true`; on macOS "
            "System Settings, General, Date & Time).",
        )
        for each in far
    ]
    if near:
        widest = max(near, key=lambda each: abs(each.guess))
        lines.append(
            ok(
                CHECK,
                f"{counted(len(near), 'peer')} within {seconds_text(abs(widest.guess))} of this "
                f"clock: {widest.name} is {_range(widest)}",
            )
        )
    return lines


def synchronisation(*, by_ntp: bool) -> Finding:
    """What the system says of its own clock."""
    if by_ntp:
        return ok(CHECK, "this machine's clock is synchronised by NTP")
    return Finding(
        CHECK,
        Level.WARNING,
        "this machine's clock is not synchronised by NTP",
        "timedatectl says so: it drifts by seconds a week.",
        "Run `timedatectl set-ntp true`, or let the machine reach an NTP server (UDP port 123). "
        "A container has the clock of its host: see there.",
    )


def _range(offset: Offset) -> str:
    return (
        f"about {_signed(offset.guess)}, surely between {_signed(offset.least)} and "
        f"{_signed(offset.most)}"
    )


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{seconds_text(abs(seconds))}"
