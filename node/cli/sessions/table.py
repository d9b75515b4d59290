"""Sessions as a table: one a row."""

from __future__ import annotations

from collections.abc import Iterable

from kakeya import SessionInfo, SessionState
from kakeya_fleet.node.cli.sessions.choosing import RUNNING, SHOWN_CHARACTERS
from kakeya_fleet.node.cli.sessions.listing import Listed
from kakeya_fleet.node.cli.terminal.quantities import bytes_text, seconds_text
from kakeya_fleet.node.cli.terminal.tables import Cell, Column, Row

COLUMNS = (
    Column("session"),
    Column("node"),
    Column("model"),
    Column("state"),
    Column("age", right=True, folds=4),
    Column("idle", right=True),
    Column("tokens", right=True),
    Column("K/V", right=True),
    Column("drafts", folds=3),
    Column("client", folds=5),
)
_STYLES = {SessionState.RESTING: "dim", SessionState.IDLE: ""}


def rows(sessions: Iterable[Listed]) -> list[Row]:
    """A row for each."""
    return [_row(each) for each in sessions]


def _row(each: Listed) -> Row:
    info = each.info
    return [
        Cell(info.session_id[:SHOWN_CHARACTERS], "bold"),
        Cell(each.node),
        Cell(info.model_id),
        Cell(info.state.value, _STYLES.get(info.state, "green")),
        seconds_text(info.age_seconds),
        "-" if info.state in RUNNING else seconds_text(info.idle_seconds),
        f"{info.history_length:,}",
        bytes_text(info.kv_bytes),
        Cell(drafter_text(info), "dim"),
        Cell(info.client_label or "-", "dim"),
    ]


def drafter_text(info: SessionInfo) -> str:
    """`ngram on mini-2`; `nobody` for one that decodes alone, with why if it did not always."""
    if info.drop_reason is not None:
        return f"nobody: {info.drop_reason.value}"
    proposer = info.plan.proposer
    return f"{proposer.model_id} on {proposer.node_name}" if proposer is not None else "nobody"


def totals_text(sessions: Iterable[Listed]) -> str:
    """`3 sessions, 4,096 tokens, 12.0 MiB of K/V`."""
    infos = [each.info for each in sessions]
    count = len(infos)
    tokens = sum(info.history_length for info in infos)
    return (
        f"{count} session{'' if count == 1 else 's'}, {tokens:,} tokens, "
        f"{bytes_text(sum(info.kv_bytes for info in infos))} of K/V"
    )
