"""What docs/figures.md says of a long conversation in one restored session."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Declared, Report, Said, Table
from scripts.write.figures_tables import line

REPORT = "long_conversation"
HEAD = (
    "| to turn | history, tokens | a turn, s | verifier's K/V, KiB | archive's, MiB "
    "| verifier's process, MB | archive's, MB |"
)


def tenths(found: Report) -> list[str]:
    """A row a tenth of the turns."""
    count = len(found["tenths"])
    return [
        line(
            f"{found['turns'] * (number + 1) // count}",
            f"{tenth['history_tokens']:,}",
            f"{tenth['turn_seconds_p50']:.2f}",
            f"{tenth['verifier_bytes'] / 2**10:,.0f}",
            f"{tenth['archive_bytes'] / 2**20:.1f}",
            f"{tenth['verifier_resident_bytes'] / 1e6:.0f}",
            f"{tenth['archive_resident_bytes'] / 1e6:.0f}",
        )
        for number, tenth in enumerate(found["tenths"])
    ]


def equal(found: Report) -> Sequence[str]:
    """Answers, and those that full attention gives too."""
    return [f"{found['turns']}", f"{found['answers_equal_to_full_attention']}"]


def slower(found: Report) -> Sequence[str]:
    """The last tenth's turn over the first's."""
    return [f"{found['last_over_first_turn']:.2f}"]


CONVERSATION: Sequence[Declared] = (
    Table(FIGURES, HEAD, REPORT, tenths),
    Said(FIGURES, "Of {} answers {} are what full attention says", REPORT, equal),
    Said(FIGURES, "A turn of the last tenth takes {} times one of the first", REPORT, slower),
)
