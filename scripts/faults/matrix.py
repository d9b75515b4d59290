"""All rows, in order."""

from __future__ import annotations

from scripts.faults import (
    callers,
    clocks_and_files,
    lost_processes,
    messages,
    networks,
)
from scripts.faults.row import Row

ROWS: tuple[Row, ...] = tuple(
    sorted(
        (
            *clocks_and_files.ROWS,
            *callers.ROWS,
            *lost_processes.ROWS,
            *messages.ROWS,
            *networks.ROWS,
        ),
        key=lambda row: row.number,
    )
)
