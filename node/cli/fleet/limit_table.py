"""A node's bounds as a table: one bound a row."""

from __future__ import annotations

from collections.abc import Iterable

from kakeya import LimitUnit, LimitUse
from kakeya_fleet.node.cli.terminal.quantities import bytes_text, seconds_text
from kakeya_fleet.node.cli.terminal.tables import Cell, Column, Row

COLUMNS = (
    Column("limit"),
    Column("used", right=True),
    Column("of", right=True),
    Column("refused", right=True, folds=2),
    Column("why", folds=1),
)

SCARCE = 0.8
"""From so much on a bound is nearly reached: the rest is kept for those who hold little."""


def rows(limits: Iterable[LimitUse]) -> list[Row]:
    """A row for each bound; `used` and `refused` are "-" for one that nobody holds."""
    return [_row(limit) for limit in limits]


def _row(limit: LimitUse) -> Row:
    refused = limit.refused_full_count + limit.refused_share_count
    is_scarce = limit.is_counted and limit.used >= SCARCE * limit.limit
    return [
        Cell(limit.name, "bold"),
        Cell(_amount(limit.unit, limit.used), "yellow" if is_scarce else "")
        if limit.is_counted
        else Cell("-", "dim"),
        Cell(_amount(limit.unit, limit.limit)),
        Cell(str(refused), "red" if refused else "") if limit.is_counted else Cell("-", "dim"),
        Cell(limit.why, "dim"),
    ]


def _amount(unit: LimitUnit, value: float) -> str:
    match unit:
        case LimitUnit.BYTES:
            return bytes_text(int(value))
        case LimitUnit.SECONDS:
            return seconds_text(value)
        case LimitUnit.A_SECOND:
            return f"{value:g}/s"
        case LimitUnit.TOKENS:
            return f"{value:,.0f} tokens"
        case _:
            return f"{value:,.0f}"
