"""All rows, in order."""

from __future__ import annotations

from scripts.faults import (
    lost_processes,
)
from scripts.faults.row import Row

ROWS: tuple[Row, ...] = tuple(
    sorted(
        (
            *lost_processes.ROWS,
        ),
        key=lambda row: row.number,
    )
)
