"""What docs/figures.md says of packed keys and values."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Report, Said, Table
from scripts.write.figures_tables import line

REPORT = "codec_quality"


def texts(found: Report) -> Sequence[str]:
    """Tokens of text, places that were looked at, and tokens of a prompt with a fact."""
    return [f"{found['tokens']:,}", f"{found['places']:,}", f"{found['needle_tokens']:,}"]


def rows(found: Report) -> list[str]:
    """A row a codec, the cache as it is first."""
    return [
        line(
            name,
            f"{own['bits_a_value']:.2f}" if "bits_a_value" in own else "",
            f"{own['divergence_nats']:.5f}" if "divergence_nats" in own else "",
            f"{own['divergence_of_one_in_1000']:.4f}" if "divergence_nats" in own else "",
            f"{100 * own['same_choice']:.1f}" if "same_choice" in own else "",
            f"{own['perplexity']:.2f}",
            f"{own['needles']['hits']} of {own['needles']['cases']}",
        )
        for name, own in found["of_codecs"].items()
    ]


CODECS = (
    Said(
        FIGURES,
        "on {} tokens of this repository's docs, behind {} places, and facts in prompts of {} "
        "tokens of them.",
        REPORT,
        texts,
    ),
    Table(
        FIGURES,
        "| keys and values | bits a number | divergence, nats | that of one in 1,000 "
        "| equal choices, % | perplexity | facts recalled |",
        REPORT,
        rows,
    ),
)
