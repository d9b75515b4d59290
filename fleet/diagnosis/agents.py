"""Whether the asked node is there, and what it says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, ok
from kakeya_fleet.fleet.diagnosis.reach import Answer

CHECK = "agent"
SEEDS = "seeds"

_START = "Start one with `fleet join --serve verifier=tiny`, or name one with --node HOST:PORT."


@dataclass(frozen=True, slots=True)
class AgentState:
    """What the asked node says; `pid` is 0 when it is not known to run on this machine."""

    name: str
    address: str
    fleet_name: str
    pid: int
    is_draining: bool


@dataclass(frozen=True, slots=True)
class SeedTrouble:
    """A seed peer that the node cannot join, in its own sentences."""

    message: str
    mend: str


def no_agent(starting: Sequence[str]) -> Finding:
    """None answers on this machine; `starting` are the names of those that will."""
    if starting:
        return Finding(
            CHECK,
            Level.WARNING,
            f"{', '.join(starting)} is starting",
            "It answers nobody yet: it is importing and checking what it serves.",
            "Run this again in a moment.",
        )
    return Finding(
        CHECK,
        Level.WARNING,
        "no agent runs on this machine",
        "No state directory of this user names a process that lives.",
        _START,
    )


def unreachable_agent(address: str, answer: Answer) -> Finding:
    """The asked node does not answer at `address`, host:port."""
    is_silent = answer is Answer.SILENT
    return Finding(
        CHECK,
        Level.PROBLEM,
        f"no node answers at {address}",
        f"There, {answer}." if answer is Answer.NOT_A_NODE else f"At that address, {answer}.",
        "The agent is frozen, overloaded or starting: look at its process, and start it again if "
        "it does not come back."
        if is_silent
        else "Start the node there, or give --node the address that its `fleet join` printed.",
    )


def agent(state: AgentState) -> Finding:
    """The asked node answered."""
    where = f"process {state.pid}" if state.pid else "not an agent of this user here"
    if state.is_draining:
        return Finding(
            CHECK,
            Level.WARNING,
            f"{state.name} is leaving the fleet",
            "It was asked to leave, and drains.",
            "Start it again with the same fleet join, if it is to stay.",
        )
    told = f"{state.name} of the fleet {state.fleet_name!r} answers at {state.address} ({where})"
    return ok(CHECK, told)


def seeds(faults: Sequence[SeedTrouble]) -> list[Finding]:
    """A line for each seed peer that cannot be joined."""
    if not faults:
        return [ok(SEEDS, "no peer that was given with --peer is missing")]
    return [
        Finding(SEEDS, Level.PROBLEM, "a given peer cannot be joined", fault.message, fault.mend)
        for fault in faults
    ]
