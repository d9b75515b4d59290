"""What docs/figures.md says of copies of models between nodes."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Declared, Report, Said, Table

REPORT = "model_copy"
HEAD = "| 300 MB | loopback, GB/s | of raw TCP | 1 Gbit/s + 0.3 ms, GB/s | of raw TCP |"
WAYS = ("raw TCP", "one source", "two sources", "two sources, one killed")
LOOPBACK, WIRE = "loopback", "1 Gbit/s + 0.3 ms"
MB = 1e6


def rows(found: Report) -> list[str]:
    """A row a way, its speed and share on each network."""
    told = []
    for way in WAYS:
        cells = []
        for network in (LOOPBACK, WIRE):
            each = found["networks"][network]["ways"][way]
            cells += [f"{each['gigabytes_per_second']:.3f}", f"{each['of_raw_tcp']:.2f}"]
        told.append(f"| {way} | {' | '.join(cells)} |")
    return told


def bounds(found: Report) -> Sequence[str]:
    """What processors take, what hashing takes of it, and the goal."""
    loopback, wire = (found["networks"][network] for network in (LOOPBACK, WIRE))
    spent = loopback["processor_seconds_a_gigabyte"]
    hashed = 1.0 / loopback["ways"]["hashed"]["gigabytes_per_second"]
    deaths = loopback["deaths"] + wire["deaths"]
    killed = [each["killed_at_bytes"] / MB for each in deaths]
    return [
        f"{spent['target']:.1f}",
        f"{hashed:.1f}",
        f"{spent['source-1']:.1f}",
        str(len(deaths)),
        f"{min(killed):.0f}",
        f"{max(killed):.0f}",
        f"{wire['goal_of_raw_tcp']:.1f}",
        "met" if wire["goal_met"] else "missed",
        "met" if loopback["goal_met"] else "missed",
    ]


COPIES: Sequence[Declared] = (
    Table(FIGURES, HEAD, REPORT, rows),
    Said(
        FIGURES,
        "Of a gigabyte the target takes {} s of processors, where one thread that only hashes it "
        "takes {}, and the source {}. Sources were killed {} times, after {} to {} MB; every copy "
        "was whole. The goal, {} of the link, was {} on the wire and {} on loopback",
        REPORT,
        bounds,
    ),
)
