"""Which software and which protocol versions the nodes of a fleet have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, counted, listed, ok

CHECK = "versions"


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a node's card says: its software, and the protocol versions it speaks."""

    name: str
    software: str
    protocol_min: int
    protocol_max: int


def versions(nodes: Sequence[Spoken]) -> list[Finding]:
    """Whether all speak one protocol, and have one software; `nodes` has one at least."""
    lowest_max = min(nodes, key=lambda node: node.protocol_max)
    highest_min = max(nodes, key=lambda node: node.protocol_min)
    if highest_min.protocol_min > lowest_max.protocol_max:
        return [
            Finding(
                CHECK,
                Level.PROBLEM,
                f"{highest_min.name} and {lowest_max.name} speak no common protocol",
                f"{highest_min.name} speaks {highest_min.protocol_min} and up, {lowest_max.name} "
                f"up to {lowest_max.protocol_max}.",
                f"Update kakeya-fleet on {lowest_max.name}.",
            )
        ]
    by_software: dict[str, list[str]] = {}
    for node in nodes:
        by_software.setdefault(node.software or "unknown", []).append(node.name)
    if len(by_software) > 1:
        told = "; ".join(f"{each} on {listed(names)}" for each, names in by_software.items())
        return [
            Finding(
                CHECK,
                Level.WARNING,
                f"{counted(len(by_software), 'version')} of kakeya-fleet in one fleet",
                f"{told}. They understand each other, but what only one knows is not used.",
                "Update all machines to the newest of them.",
            )
        ]
    software = next(iter(by_software))
    return [
        ok(
            CHECK,
            f"kakeya-fleet {software}, protocol {highest_min.protocol_min} to "
            f"{lowest_max.protocol_max}, on {counted(len(nodes), 'node')}",
        )
    ]
