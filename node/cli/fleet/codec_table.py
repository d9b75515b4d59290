"""What a node measured of codecs as a table: one codec of one model a row."""

from __future__ import annotations

from collections.abc import Iterable

from kakeya import MeasuredCodec
from kakeya_fleet.node.cli.terminal.tables import Cell, Column, Row

COLUMNS = (
    Column("model"),
    Column("codec"),
    Column("bits", right=True),
    Column("positions", right=True),
    Column("nats", right=True),
    Column("has it", folds=2),
    Column("why", folds=1),
)


def rows(codecs: Iterable[MeasuredCodec]) -> list[Row]:
    """A row for each; "-" where nothing was measured, and where no quality has it."""
    return [_row(each) for each in codecs]


def _row(each: MeasuredCodec) -> Row:
    users = ", ".join(quality.value for quality in each.qualities)
    return [
        Cell(each.model_id, "bold"),
        Cell(each.codec, "green" if users else ""),
        Cell(f"{each.bits:g}"),
        Cell(str(each.position_count)),
        Cell(f"{each.divergence_nats:.4f} ± {each.error_nats:.4f}")
        if each.position_count
        else Cell("-", "dim"),
        Cell(users) if users else Cell("-", "dim"),
        Cell(" ".join(each.reasons), "dim"),
    ]
