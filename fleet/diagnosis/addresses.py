"""Whether the addresses on a node's card are there, answer, and are those that it calls from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, counted, listed, ok

CHECK = "addresses"


@dataclass(frozen=True, slots=True)
class CardAddress:
    """An address of the card: whether an interface of this machine has it, and why it is mute.

    `fault` is a phrase, empty when the agent answers there.
    """

    address: str
    is_here: bool
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """From which of this machine's IP addresses calls to a peer go out; `fault` when none do.

    `is_on_card` is whether that is one of the card's own.
    """

    peer: str
    address: str
    source: str = ""
    fault: str = ""
    is_on_card: bool = True


def addresses(own: Sequence[CardAddress], routes: Sequence[Route]) -> list[Finding]:
    """A line for each address that is wrong and each peer without a way, one for the others."""
    lines = [line for each in own for line in _of_card(each)]
    whole = [each.address for each in own if each.is_here and not each.fault]
    for route in routes:
        if route.fault:
            lines.append(
                Finding(
                    CHECK,
                    Level.PROBLEM,
                    f"no route to {route.peer} at {route.address}",
                    f"The kernel knows no way there ({route.fault}).",
                    "Bring both machines into one network, or let that node join with --bind of an "
                    "address that this machine reaches.",
                )
            )
        elif not route.is_on_card:
            lines.append(
                Finding(
                    CHECK,
                    Level.WARNING,
                    f"calls to {route.peer} go out from {route.source}, which is not on the card",
                    f"The card names {listed(whole) or 'no address of this machine'}; that peer "
                    "may have no way back there.",
                    "Join with --bind of the address that the peers share a network with.",
                )
            )
    if whole:
        shown = counted(len(whole), "address")
        lines.append(ok(CHECK, f"the agent answers at {shown} of its card: {listed(whole)}"))
    return lines


def _of_card(own: CardAddress) -> list[Finding]:
    if not own.is_here:
        return [
            Finding(
                CHECK,
                Level.PROBLEM,
                f"no interface of this machine has {own.address}",
                "The card still names it: the machine changed networks after its agent started.",
                "Start the agent again: it takes the addresses that there are.",
            )
        ]
    if own.fault:
        return [
            Finding(
                CHECK,
                Level.PROBLEM,
                f"the agent does not answer at {own.address}",
                f"It is on the card, and {own.fault}.",
                "Start the agent again; if it stays so, give --bind that address alone.",
            )
        ]
    return []
