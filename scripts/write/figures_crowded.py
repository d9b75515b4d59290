"""What docs/figures.md says of drafts for several sessions at once."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scripts.bench.automatic_drafts import FLOOR
from scripts.write.figures_register import FIGURES, Declared, Report, Said, Table

REPORT = "crowded_drafts"
HEAD = (
    "| sessions at once | temperature | alone, tokens a second | auto | times alone, by rounds"
    " | alone again, times alone |"
)


def rows(found: Report) -> list[str]:
    """One a number of sessions and temperature."""
    return [
        f"| {cell['sessions']} | {cell['temperature']:g}"
        f" | {_median(cell, 'alone', 'again'):.0f} | {_median(cell, 'auto'):.0f}"
        f" | {_listed(cell['times_alone'])} | {_listed(cell['again_times_alone'])} |"
        for cell in found["cells"]
    ]


def _median(cell: Report, *sides: str) -> float:
    return float(
        statistics.median(speed for side in sides for speed in cell["tokens_per_second"][side])
    )


def _listed(ratios: Sequence[float]) -> str:
    return ", ".join(f"{each:.2f}" for each in ratios)


def differing(found: Report) -> Sequence[str]:
    """How many answers are not those alone."""
    return [str(found["answers_that_differ"])]


def below(found: Report) -> Sequence[str]:
    """Rounds, those of auto below the floor and the least, and the same of alone again."""
    said = []
    for name in ("times_alone", "again_times_alone"):
        ratios = [ratio for cell in found["cells"] for ratio in cell[name]]
        said += [str(sum(ratio < FLOOR for ratio in ratios)), f"{min(ratios):.2f}"]
    return [str(len(ratios)), *said]


CROWDED: Sequence[Declared] = (
    Table(FIGURES, HEAD, REPORT, rows),
    Said(
        FIGURES,
        "Of {} rounds auto made less than 0.95 of alone in {}, {} at the least; alone again in {},"
        " {} at the least.",
        REPORT,
        below,
    ),
    Said(FIGURES, "Of these answers {} differ from those alone.", REPORT, differing),
)
