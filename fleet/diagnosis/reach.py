"""Whether nodes reach each other: this machine its peers, and each peer the asked node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, counted, listed, not_run, ok
from kakeya_fleet.fleet.quantities import seconds_text

TO_PEERS = "to_peers"
FROM_PEERS = "from_peers"


class Answer(StrEnum):
    """What came of a call to an address."""

    NODE = "the node answers"
    OTHER_NODE = "another node answers there"
    REFUSED = "nothing listens there"
    NO_NAME = "its name does not resolve"
    NO_ROAD = "nothing answers there"
    SILENT = "it takes connections and says nothing in time"
    NOT_A_NODE = "what answers there is no node"


_MENDS = {
    Answer.OTHER_NODE: "Two nodes claim that address, or it leads elsewhere from here: give the "
    "node an address of its own with --bind.",
    Answer.REFUSED: "Start the agent there again with the same fleet join; if it runs, it is bound "
    "to another address (--bind).",
    Answer.NO_NAME: "Bind that node to an IP address, or let this machine resolve the name.",
    Answer.NO_ROAD: "See whether that machine is awake and on this network, and let its TCP port "
    "pass its firewall.",
    Answer.SILENT: "Its process is frozen, overloaded or starting: look at it on its machine, and "
    "start the agent there again if it does not come back.",
    Answer.NOT_A_NODE: "Another program has its port: start the agent there again.",
}


@dataclass(frozen=True, slots=True)
class Visit:
    """A call from this machine to one address of a peer; `seconds` it took, when answered.

    `liveness` is what the asked node holds of the peer: alive, suspect or dead.
    """

    name: str
    address: str
    answer: Answer
    seconds: float = 0.0
    liveness: str = "alive"


@dataclass(frozen=True, slots=True)
class Probe:
    """What a peer said when it was asked to call the asked node.

    `fault` is a phrase when it could not be asked, `is_unknown` when it does not know the node.
    """

    name: str
    is_reachable: bool = False
    seconds: float = 0.0
    fault: str = ""
    is_unknown: bool = False


def to_peers(visits: Sequence[Visit], unvisited_count: int = 0) -> list[Finding]:
    """A line for each peer that does not answer at each of its addresses, one for the others."""
    by_name: dict[str, list[Visit]] = {}
    for visit in visits:
        by_name.setdefault(visit.name, []).append(visit)
    lines, whole = [], []
    for name, own in by_name.items():
        deaf = [visit for visit in own if visit.answer is not Answer.NODE]
        if not deaf:
            whole += own
            continue
        is_gone = len(deaf) == len(own)
        causes = "; ".join(f"{visit.address}: {visit.answer}" for visit in deaf)
        held = f" The fleet holds it {own[0].liveness}." if is_gone else ""
        lines.append(
            Finding(
                TO_PEERS,
                Level.PROBLEM if is_gone else Level.WARNING,
                f"{name} does not answer {'' if is_gone else 'at each of its addresses'}".strip(),
                f"{causes}.{held}",
                _MENDS[deaf[0].answer],
            )
        )
    if whole:
        slowest = max(visit.seconds for visit in whole)
        names = list(dict.fromkeys(visit.name for visit in whole))
        lines.append(
            ok(
                TO_PEERS,
                f"{listed(names)} answer{'s' if len(names) == 1 else ''} at "
                f"{counted(len(whole), 'address')}, within {seconds_text(slowest)}",
            )
        )
    if unvisited_count:
        lines.append(not_run(TO_PEERS, f"{unvisited_count} farther peers were not called."))
    return lines


def from_peers(probes: Sequence[Probe], node: str, addresses: Sequence[str]) -> list[Finding]:
    """Whether the peers reach `node`, which says that it answers at `addresses`."""
    lines, reached = [], []
    where = listed(addresses) or "no address"
    for probe in probes:
        if probe.fault:
            cause = f"{probe.name} could not be asked: {probe.fault}."
            lines.append(not_run(FROM_PEERS, cause))
        elif probe.is_unknown:
            lines.append(
                Finding(
                    FROM_PEERS,
                    Level.WARNING,
                    f"{probe.name} does not know {node}",
                    "The card has not reached it: it joined just now, or gossip passes one way.",
                    "Run it again in a few seconds; if it stays so, join with --peer of that node.",
                )
            )
        elif probe.is_reachable:
            reached.append(probe)
        else:
            lines.append(
                Finding(
                    FROM_PEERS,
                    Level.PROBLEM,
                    f"{probe.name} does not reach {node}",
                    f"It called {where} in vain: a firewall before {node} drops what comes in, or "
                    "that is no address that leads from there.",
                    "Let the TCP port pass the firewall of that machine (on macOS: System "
                    f"Settings, Network, Firewall), or join with --bind ADDRESS that {probe.name} "
                    "reaches.",
                )
            )
    if reached:
        slowest = max(probe.seconds for probe in reached)
        names = listed(probe.name for probe in reached)
        lines.append(
            ok(
                FROM_PEERS,
                f"{names} reach{'es' if len(reached) == 1 else ''} {node}, within "
                f"{seconds_text(slowest)}",
            )
        )
    return lines
