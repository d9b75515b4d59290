"""The table of docs/faults.md, and what docs/figures.md says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from scripts.faults.row import Verdict
from scripts.write.figures_register import FAULTS, FIGURES, Report, Said, Table

REPORT = "fault_matrix"
HEAD = "| # | fault | criterion | measured | verdict |"


def rows(found: Report) -> Iterator[str]:
    """A line for each row of the matrix; those that are missed stand out."""
    for row in found["rows"]:
        verdict = row["verdict"]
        word = f"**{verdict}**" if verdict == Verdict.MISSED.value else verdict
        cells = (row["row"], row["fault"], row["criterion"], row["measured"], word)
        yield f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(value: object) -> str:
    return " ".join(str(value).replace("|", "\\|").split())


def counted(found: Report) -> Sequence[str]:
    """How many rows there are, and how many came to which verdict."""
    verdicts = Counter(row["verdict"] for row in found["rows"])
    return [str(len(found["rows"])), *(str(verdicts[each.value]) for each in Verdict)]


TABLE = Table(FAULTS, HEAD, REPORT, lambda found: list(rows(found)))
COUNTED = Said(
    FIGURES,
    "{} rows: {} passed, {} missed, {} not run on this host",
    REPORT,
    counted,
)
