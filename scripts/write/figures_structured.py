"""What docs/figures.md says of answers that are held to a schema."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Declared, Report, Said, Table

HEAD = "| answers | tokens a second | tokens a forward | drafted tokens cut off |"


def speeds(found: Report) -> list[str]:
    """A row a side."""
    rows = []
    for side, speed in found["tokens_per_second"].items():
        counts = found["counts"][side]
        each = counts["tokens"] / counts["forwards"]
        rows.append(f"| {side} | {speed:.0f} | {each:.2f} | {counts['forbidden']:,} |")
    return rows


def ratios(found: Report) -> Sequence[str]:
    """What a held answer's speed is to a free one's, alone and with n-grams."""
    told = found["tokens_per_second"]
    return [f"{told[f'held, {who}'] / told[f'free, {who}']:.2f}" for who in ("alone", "n-gram")]


def masks(found: Report) -> Sequence[str]:
    """Microseconds of a token's mask, their median and mean; milliseconds to compile."""
    grammar = found["grammar"]
    return [
        f"{grammar['token_seconds_median'] * 1e6:.0f}",
        f"{grammar['token_seconds_mean'] * 1e6:.0f}",
        f"{grammar['compile_seconds'] * 1e3:.1f}",
        f"{grammar['vocabulary_size']:,.0f}",
    ]


STRUCTURED: Sequence[Declared] = (
    Table(FIGURES, HEAD, "structured", speeds),
    Said(
        FIGURES,
        "Held answers have {} of the speed of free ones alone, and {}",
        "structured",
        ratios,
    ),
    Said(
        FIGURES,
        "A token's mask takes {} µs in the median and {} in the mean, and the schema {} ms to be "
        "compiled, for a vocabulary of {}",
        "structured",
        masks,
    ),
)
