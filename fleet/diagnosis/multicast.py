"""Whether nodes can find each other by multicast DNS on this machine's interfaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, counted, listed, ok

CHECK = "multicast"

_MEND = (
    "Let UDP port 5353 to and from 224.0.0.251 pass the firewall, or name a node with "
    "`fleet join --peer HOST:PORT`, which needs no multicast."
)


@dataclass(frozen=True, slots=True)
class Interface:
    """One IPv4 address: whether a question sent from it was heard, and who else announces.

    `fault` is a phrase, empty when the sockets could be opened. `others` are the names
    under which nodes of other machines announce themselves.
    """

    address: str
    name: str
    fault: str = ""
    is_heard: bool = False
    others: tuple[str, ...] = ()


def multicast(interfaces: Sequence[Interface]) -> list[Finding]:
    """A line for each interface that is deaf, and one for all that hear."""
    lines = []
    for each in interfaces:
        if each.fault:
            lines.append(_warning(f"no multicast DNS on {_named(each)}", f"{each.fault}."))
        elif not each.is_heard:
            lines.append(
                _warning(
                    f"multicast DNS on {_named(each)} is not heard",
                    "What was asked from there reached no listener of this very machine in time: "
                    "a firewall drops it, or the interface does not loop multicast back.",
                )
            )
    hearing = [each for each in interfaces if not each.fault and each.is_heard]
    if hearing:
        others = {other for each in hearing for other in each.others}
        # One's own voice does not prove that the network carries it; another's does.
        told = (
            f"{counted(len(others), 'node')} of other machines heard"
            if others
            else "no other machine's node was heard, so whether the network carries it is open"
        )
        names = listed(_named(each) for each in hearing)
        lines.append(ok(CHECK, f"sent and heard on {names}; {told}"))
    return lines


def _warning(what: str, cause: str) -> Finding:
    return Finding(CHECK, Level.WARNING, what, cause, _MEND)


def _named(interface: Interface) -> str:
    return f"{interface.name} ({interface.address})"
