"""What docs/figures.md says of sessions that choose their drafts themselves."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, README, Declared, Report, Said, Table
from scripts.write.figures_trained_drafter import CALLED, KINDS

REPORT = "automatic_drafts"
HEAD = (
    "| auto, times alone | chat | code | lists | rewriting | summaries | prose | all | least"
    " | below 0.95 |"
)


def times(found: Report) -> list[str]:
    """A row a temperature and round: medians by kind, of all, the least, and who is slower."""
    rows = []
    for heat, called in CALLED.items():
        for number, each in enumerate(found["rounds"], start=1):
            mine = each[heat]
            numbers = [f"{mine[kind]:.2f}" for kind in (*KINDS, "all", "least")]
            slower = f"{mine['below_the_floor']} of {mine['answers']}"
            rows.append(f"| {called}, round {number} | " + " | ".join([*numbers, slower]) + " |")
    return rows


def noise(found: Report) -> Sequence[str]:
    """Between what the second answers alone lie over the first, and how many answers differ."""
    told = [each[heat]["alone_again"] for each in found["rounds"] for heat in CALLED]
    least, most = min(each["least"] for each in told), max(each["most"] for each in told)
    return [f"{least:.2f}", f"{most:.2f}", str(found["answers_that_differ"])]


def overall(found: Report) -> Sequence[str]:
    """Greedily and at 0.7: the median of the rounds' medians, and the least of all answers."""
    told = [[each[heat] for each in found["rounds"]] for heat in CALLED]
    return [
        f"{number:.2f}"
        for rounds in told
        for number in (
            statistics.median(each["all"] for each in rounds),
            min(each["least"] for each in rounds),
        )
    ]


AUTOMATIC_DRAFTS: Sequence[Declared] = (
    Table(FIGURES, HEAD, REPORT, times),
    Said(
        README,
        "| SmolLM2-135M in bfloat16 with `auto` over alone, greedy; at temperature 0.7: median "
        "(least) | {} ({}); {} ({}) | prompts of six kinds, to the end of each answer; it has its "
        "own weights in four bits, the trained drafter and n-grams to choose from, all on the "
        "same two cores; nothing is known of them in the first of three rounds |",
        REPORT,
        overall,
    ),
    Said(
        FIGURES,
        "A second answer alone has between {} and {} times the speed of the first; {} answers"
        " differ from those alone.",
        REPORT,
        noise,
    ),
)
