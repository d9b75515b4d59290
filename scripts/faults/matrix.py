"""All rows, in order."""

from __future__ import annotations

from scripts.faults import (
    authority,
    callers,
    clocks_and_files,
    lost_processes,
    messages,
    networks,
    proposers,
    releases,
)
from scripts.faults.row import Row

ROWS: tuple[Row, ...] = tuple(
    sorted(
        (
            *clocks_and_files.ROWS,
            *authority.ROWS,
            *callers.ROWS,
            *lost_processes.ROWS,
            *messages.ROWS,
            *networks.ROWS,
            *proposers.ROWS,
            *releases.ROWS,
        ),
        key=lambda row: row.number,
    )
)
