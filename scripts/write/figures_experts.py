"""What docs/figures.md says of experts in exact groups, beside the library's own."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Declared, Report, Said, Table

HEAD = "| milliseconds for 1 / 8 / 64 rows | bfloat16 | float32 | rows that company changes |"
SIDES = {
    "eager": "transformers, an expert at a time",
    "grouped_mm": "transformers, `grouped_mm`",
    "exact": "here, in exact groups",
}


def costs(found: Report) -> list[str]:
    """A row a side: its milliseconds by dtype, and how many of eight rows company changes."""
    rows = []
    for side, name in SIDES.items():
        cells = []
        for dtype in ("bfloat16", "float32"):
            times = found["found"][dtype]["milliseconds"].values()
            cells.append(" / ".join(f"{each[side]:.1f}" for each in times))
        changed = [
            f"{own['of 8 rows company changes'][side]} of 8 in {dtype}"
            for dtype, own in found["found"].items()
        ]
        rows.append(f"| {name} | {' | '.join(cells)} | {', '.join(changed)} |")
    return rows


def shape(found: Report) -> Sequence[str]:
    """Experts of a layer, their inputs and what is inside, and how many a row asks."""
    return [str(number) for number in found["shape"]]


EXPERTS: Sequence[Declared] = (
    Table(FIGURES, HEAD, "experts", costs),
    Said(
        FIGURES,
        "one layer of {} random experts of the size of Gemma 4 26B-A4B's "
        "({} to {}, {} for each row)",
        "experts",
        shape,
    ),
)
