"""What docs/figures.md says of sessions whose proposers are on another machine."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scripts.bench.automatic_drafts import FLOOR
from scripts.write.figures_register import FIGURES, README, Declared, Report, Said, Table
from scripts.write.figures_trained_drafter import CALLED, KINDS

REPORT = "distant_drafts"
HEAD = (
    "| round trip added, temperature | chat | code | lists | rewriting | summaries | prose | all"
    " | least | below 0.95 |"
)


def times(found: Report) -> list[str]:
    """A row a round trip, temperature and round: medians by kind, of all, the least, the slower."""
    rows = []
    for cell in found["cells"]:
        milliseconds = f"{1e3 * cell['round_trip_seconds']:.0f} ms"
        for heat, called in CALLED.items():
            for number, each in enumerate(cell["rounds"], start=1):
                mine = each[heat]
                numbers = [f"{mine[kind]:.2f}" for kind in (*KINDS, "all", "least")]
                slower = f"{mine['below_the_floor']} of {mine['answers']}"
                named = f"{milliseconds}, {called}, round {number}"
                rows.append(f"| {named} | " + " | ".join([*numbers, slower]) + " |")
    return rows


def first_tokens(found: Report) -> Sequence[str]:
    """At the longest round trip: of `auto` and alone, in milliseconds."""
    told = max(found["cells"], key=lambda cell: float(cell["round_trip_seconds"]))
    first = told["first_token_seconds"]
    return [f"{1e3 * first[side]:.0f}" for side in ("auto", "alone")]


def floor(found: Report) -> Sequence[str]:
    """Answers, those of auto below the floor and the least, the same of alone again, differing."""
    ratios: list[float] = []
    noise: list[float] = []
    for cell in found["cells"]:
        for answers in cell["tokens_per_second"]:
            for _, _, speeds in answers:
                alone, again = speeds["alone"], speeds["alone again"]
                ratios.append(speeds["auto"] * (1 / alone + 1 / again) / 2)
                noise.append(again / alone)
    said = [str(len(ratios))]
    for each in (ratios, noise):
        said += [str(sum(ratio < FLOOR for ratio in each)), f"{min(each):.2f}"]
    return [*said, str(sum(cell["answers_that_differ"] for cell in found["cells"]))]


def overall(found: Report) -> Sequence[str]:
    """At each round trip, greedily and at 0.7: the median of the rounds' medians."""
    return [
        f"{statistics.median(each[heat]['all'] for each in cell['rounds']):.2f}"
        for cell in found["cells"]
        for heat in CALLED
    ]


DISTANT_DRAFTS: Sequence[Declared] = (
    Table(FIGURES, HEAD, REPORT, times),
    Said(
        README,
        "| the same with its proposers a network away, 0, 5 and 20 ms added, greedy and at"
        " temperature 0.7: median | {} and {}; {} and {}; {} and {} | a processor for each of both"
        " nodes, one way to the memory |",
        REPORT,
        overall,
    ),
    Said(
        FIGURES,
        "At 20 ms the first token of `auto` comes after {} ms, and {} alone, by the median.",
        REPORT,
        first_tokens,
    ),
    Said(
        FIGURES,
        "Of {} answers `auto` made less than 0.95 of alone in {}, {} at the least; alone again in"
        " {}, {} at the least; {} answers differ from those alone.",
        REPORT,
        floor,
    ),
)
