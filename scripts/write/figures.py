"""Holds the numbers of README.md, docs/figures.md and docs/faults.md to the reports in benchmarks/.

    python -m scripts.write.figures            says what differs, and which numbers have no report
    python -m scripts.write.figures --write    writes the reports' numbers into the documents

`figures_prose` declares stretches of text with places for numbers, `figures_tables` whole
tables; each names its report and how its numbers come of it. A number of these documents
that stands in neither, and is no setting or name of `NO_FIGURES`, has no report.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from scripts.write import figures_faults
from scripts.write.figures_agents import AGENTS
from scripts.write.figures_automatic_drafts import AUTOMATIC_DRAFTS
from scripts.write.figures_codecs import CODECS
from scripts.write.figures_conversation import CONVERSATION
from scripts.write.figures_copies import COPIES
from scripts.write.figures_crowded import CROWDED
from scripts.write.figures_distant_drafts import DISTANT_DRAFTS
from scripts.write.figures_experts import EXPERTS
from scripts.write.figures_fitted import FITTED
from scripts.write.figures_long_history import LONG_HISTORY
from scripts.write.figures_plain_drafts import PLAIN_DRAFTS
from scripts.write.figures_products import PRODUCTS
from scripts.write.figures_prose import SAID
from scripts.write.figures_register import (
    DOCUMENTS,
    ROOT,
    Declared,
    FigureDiffers,
    unreported,
)
from scripts.write.figures_restored_text import RESTORED_TEXT
from scripts.write.figures_settings import SETTINGS
from scripts.write.figures_structured import STRUCTURED
from scripts.write.figures_tables import TABLES
from scripts.write.figures_trained_drafter import TRAINED_DRAFTER

DECLARED: Sequence[Declared] = (
    *SAID,
    *TABLES,
    *AGENTS,
    *AUTOMATIC_DRAFTS,
    *CODECS,
    *CONVERSATION,
    *COPIES,
    *CROWDED,
    *DISTANT_DRAFTS,
    *EXPERTS,
    *PRODUCTS,
    *FITTED,
    *PLAIN_DRAFTS,
    *LONG_HISTORY,
    *RESTORED_TEXT,
    *STRUCTURED,
    *TRAINED_DRAFTER,
    figures_faults.COUNTED,
    figures_faults.TABLE,
)


def write(declared: Sequence[Declared]) -> None:
    """Writes every number into its document."""
    for document in DOCUMENTS:
        path = ROOT / document
        text = path.read_text()
        for each in declared:
            if each.document == document:
                text = each.written(text)
        path.write_text(text)


def faults(declared: Sequence[Declared]) -> Iterator[str]:
    """What differs, and what has no report."""
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        own = [each for each in declared if each.document == document]
        wrong = []
        for each in own:
            try:
                each.check(text)
            except FigureDiffers as error:
                wrong.append(each)
                yield str(error)
        kept = [each for each in own if each not in wrong]
        missing = unreported(document, text, kept, SETTINGS[document])
        yield from (f"{document}: no report: {words}" for words in missing)


def main() -> None:
    """Checks or writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="the reports' numbers")
    arguments = parser.parse_args()
    declared = DECLARED
    if arguments.write:
        write(declared)
    found = list(faults(declared))
    print("\n".join(found) or f"{len(declared)} stretches and tables are what the reports say")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
