"""Whether macOS lets this program talk to machines of its own network.

Since macOS 15 a person is asked whether a program may (Settings, Privacy & Security, Local
Network). Refused connections end at once with EHOSTUNREACH, though there is a route; see Apple's
Technical Note TN3179. Untested: no Mac was at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, listed, ok

CHECK = "local_network"


@dataclass(frozen=True, slots=True)
class LocalCall:
    """A connection to a machine of this network: whether the kernel refused it as unreachable."""

    address: str
    has_route: bool
    is_host_unreachable: bool


def local_network(calls: Sequence[LocalCall]) -> Finding:
    """Whether each refused call looks as if macOS forbade it; `calls` has one at least."""
    refused = [call.address for call in calls if call.has_route and call.is_host_unreachable]
    if not refused:
        return ok(CHECK, "macOS lets this program reach its network")
    return Finding(
        CHECK,
        Level.PROBLEM if len(refused) == len(calls) else Level.WARNING,
        f"macOS may forbid to reach {listed(refused)}",
        "The connection was refused as unreachable at once, though there is a route: so it is "
        "without the Local Network permission, and also when that machine sleeps.",
        "Allow the terminal, or the program that starts the agent, in System Settings, Privacy & "
        "Security, Local Network; then start that program again.",
    )
