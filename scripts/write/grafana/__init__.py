"""The Grafana dashboard: its rows in their order, each in a module of its own."""

from scripts.write.grafana import (
    row_archives,
    row_errors,
    row_fleet,
    row_links,
    row_sessions,
    row_speculation,
)
from scripts.write.grafana.panel import Panel, Query, Row

__all__ = ["ROWS", "Panel", "Query", "Row"]

ROWS = (
    row_fleet.ROW,
    row_sessions.ROW,
    row_speculation.ROW,
    row_links.ROW,
    row_archives.ROW,
    row_errors.ROW,
)
