"""What docs/figures.md says of drafts for several sessions at once."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Declared, Report, Said, Table

REPORT = "crowded_drafts"
HEAD = "| sessions at once | temperature | alone, tokens a second | auto | times alone, by rounds |"


def rows(found: Report) -> list[str]:
    """One a number of sessions and temperature."""
    return [
        f"| {cell['sessions']} | {cell['temperature']:g}"
        f" | {statistics.median(cell['tokens_per_second']['alone']):.0f}"
        f" | {statistics.median(cell['tokens_per_second']['auto']):.0f}"
        f" | {', '.join(f'{each:.2f}' for each in cell['times_alone'])} |"
        for cell in found["cells"]
    ]


def differing(found: Report) -> Sequence[str]:
    """How many answers are not those alone."""
    return [str(found["answers_that_differ"])]


CROWDED: Sequence[Declared] = (
    Table(FIGURES, HEAD, REPORT, rows),
    Said(FIGURES, "Of these answers {} differ from those alone.", REPORT, differing),
)
