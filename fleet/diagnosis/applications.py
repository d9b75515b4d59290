"""Whether applications on other machines, which have keys, find what they call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, listed, not_run, ok

CHECK = "applications"


@dataclass(frozen=True, slots=True)
class Way:
    """One address of the card with a port for applications, as a client finds it.

    `fault` is a phrase of why no client gets in there, `is_named` whether the certificate names
    the address: clients of HTTP compare that.
    """

    protocol: str
    address: str
    fault: str = ""
    is_named: bool = True


def applications(ways: Sequence[Way] | None) -> list[Finding]:
    """A line for each way that is shut, one for the others; None without an authority."""
    if ways is None:
        return [not_run(CHECK, "The fleet has no authority, so applications have no keys.")]
    if not ways:
        return [ok(CHECK, "no port takes keys: other machines' applications have no way in here")]
    lines = [_shut(way) for way in ways if way.fault]
    lines += [_unnamed(way) for way in ways if not way.fault and not way.is_named]
    whole = [f"{way.address} ({way.protocol})" for way in ways if not way.fault and way.is_named]
    if whole:
        lines.append(ok(CHECK, f"keys are taken at {listed(whole)}"))
    return lines


def _shut(way: Way) -> Finding:
    return Finding(
        CHECK,
        Level.PROBLEM,
        f"nobody gets in at {way.address} ({way.protocol})",
        f"It is where applications call, and {way.fault}.",
        "Start the agent again; if it stays so, see its log: `fleet logs`.",
    )


def _unnamed(way: Way) -> Finding:
    return Finding(
        CHECK,
        Level.WARNING,
        f"clients of HTTP do not trust {way.address}",
        "The node's certificate does not name that address, as when no keeper has answered since "
        "the machine has it.",
        "Start a keeper: `fleet members` says who is one. Then the node asks for it by itself.",
    )
