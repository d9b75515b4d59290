"""What docs/figures.md says of products of few rows, beside the libraries' own."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Declared, Report, Said, Table

REPORT = "products"
HEAD = "| milliseconds for rows | MB of weights | 1 | 2 | 4 | 8 | 16 |"
SIDES = {
    "reading": "reading alone",
    "float32": "float32, here",
    "torch float32": "float32, torch",
    "oneDNN float32": "float32, oneDNN, laid out once",
    "bfloat16": "bfloat16, here",
    "torch bfloat16": "bfloat16, torch",
    "oneDNN bfloat16": "bfloat16, oneDNN, laid out once",
    "int8": "eight bits, here",
    "int4": "four bits, here",
}


def products(found: Report) -> list[str]:
    """A row a side that this machine had."""
    rows = []
    for side, name in SIDES.items():
        if side in found["milliseconds"]:
            times = [f"{each:.1f}" for each in found["milliseconds"][side].values()]
            rows.append(
                f"| {name} | {found['weight_bytes'][side] / 1e6:.0f} | {' | '.join(times)} |"
            )
    return rows


def speeds(found: Report) -> Sequence[str]:
    """GB of weights a second of one row: reading, and each format here."""
    names = ("reading", "float32", "bfloat16", "int8", "int4")
    return [
        f"{found['weight_bytes'][name] / found['milliseconds'][name]['1'] / 1e6:.0f}"
        for name in names
    ]


def sizes(found: Report) -> Sequence[str]:
    """The matrix's inputs and outputs."""
    return [f"{found['inputs']:,}", f"{found['outputs']:,}"]


PRODUCTS: Sequence[Declared] = (
    Said(FIGURES, "one matrix of {} inputs and {} outputs, in the formats", REPORT, sizes),
    Table(FIGURES, HEAD, REPORT, products),
    Said(
        FIGURES,
        "One row takes {} GB of weights a second by reading alone, and {}, {}, {} and {} in "
        "float32, bfloat16, eight bits and four.",
        REPORT,
        speeds,
    ),
)
