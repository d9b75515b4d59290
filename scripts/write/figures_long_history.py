"""What docs/figures.md says of drafts behind long histories."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Declared, Report, Said, Table

REPORT = "long_history_drafts"
HEAD = (
    "| sessions, history | temperature | drafts | tokens a second | tokens a forward |"
    " times alone | least prompt | least |"
)


def rows(found: Report) -> list[str]:
    """One a kind of session, temperature and side."""
    return [
        f"| {cell['sessions']}, {cell['history_tokens']:,} tokens | {cell['temperature']:g}"
        f" | {side} | {own['tokens_per_second']:.1f} | {own['tokens_a_forward']:.1f}"
        f" | {own['times_alone']:.2f} | {own['times_alone_least_prompt']:.2f}"
        f" | {own['times_alone_least']:.2f} |"
        for cell in found["cells"]
        for side, own in cell["sides"].items()
    ]


def differing(found: Report) -> Sequence[str]:
    """How many answers are not those without drafts."""
    return [str(found["answers_that_differ"])]


LONG_HISTORY: Sequence[Declared] = (
    Table(FIGURES, HEAD, REPORT, rows),
    Said(
        FIGURES,
        "Behind these histories {} answers differ from those without drafts.",
        REPORT,
        differing,
    ),
)
