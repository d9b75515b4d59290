"""What must hold of a session's history before it is continued or forked."""

from __future__ import annotations

from kakeya_fleet.engine.errors import ContextExceeded, EmptyHistory, HistoryLengthMismatch


def check_room(limit: int, *, history_length: int, history_limit: int) -> int:
    """How many of `limit` >= 1 tokens a history that holds `history_limit` at most can take.

    Raises `EmptyHistory` for one without tokens, `ContextExceeded` when none fits.
    """
    if limit < 1:
        raise ValueError(f"limit {limit} leaves no token to commit")
    if not history_length:
        raise EmptyHistory("a generation continues a history; append tokens first")
    if history_length >= history_limit:
        raise ContextExceeded(
            f"the history holds the {history_limit} tokens that it can",
            history_length=str(history_length),
            history_limit=str(history_limit),
        )
    return min(limit, history_limit - history_length)


def prefix_length(asked: int | None, history_length: int) -> int:
    """The length of a prefix, None being all; raises `HistoryLengthMismatch`."""
    length = history_length if asked is None else asked
    if not 0 <= length <= history_length:
        raise HistoryLengthMismatch(
            f"the history has {history_length} tokens, no first {length}",
            history_length=str(history_length),
        )
    return length
