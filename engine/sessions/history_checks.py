"""What must hold of a session's history before it is appended to, continued or forked."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya_fleet.engine.errors import (
    ContextExceeded,
    EmptyAppend,
    EmptyHistory,
    HistoryLengthMismatch,
    TokenOutOfVocabulary,
)


def check_expected(expected_length: int | None, history_length: int) -> None:
    """Raises `HistoryLengthMismatch` when `expected_length` is given and another."""
    if expected_length is not None and expected_length != history_length:
        raise HistoryLengthMismatch(
            f"the history has {history_length} tokens, not {expected_length}; "
            "append what is missing",
            history_length=str(history_length),
            expected_history_length=str(expected_length),
        )


def check_append(
    token_ids: Sequence[int],
    *,
    history_length: int,
    expected_length: int | None,
    vocabulary_size: int,
    history_limit: int,
) -> None:
    """Whether a history of `history_length` tokens takes these.

    Raises `HistoryLengthMismatch` when `expected_length` is given and another,
    `EmptyAppend`, `TokenOutOfVocabulary`, and `ContextExceeded` when more than
    `history_limit` tokens would be there.
    """
    check_expected(expected_length, history_length)
    if not token_ids:
        raise EmptyAppend("an append needs at least one token")
    # Before each of them is looked at: there may be millions.
    check_length(len(token_ids), history_length=history_length, history_limit=history_limit)
    _check_vocabulary(token_ids, vocabulary_size)


def check_length(count: int, *, history_length: int, history_limit: int) -> None:
    """Raises `ContextExceeded` when `count` more tokens are more than `history_limit`."""
    if history_length + count > history_limit:
        raise ContextExceeded(
            f"{history_length} + {count} tokens are more than the {history_limit}"
            " that this session can hold",
            history_length=str(history_length),
            history_limit=str(history_limit),
        )


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


def _check_vocabulary(token_ids: Sequence[int], size: int) -> None:
    if min(token_ids) >= 0 and max(token_ids) < size:
        return
    index, token_id = next(
        (index, token) for index, token in enumerate(token_ids) if not 0 <= token < size
    )
    raise TokenOutOfVocabulary(
        f"token {token_id} at index {index} is outside the vocabulary of {size}",
        token_id=str(token_id),
        index=str(index),
        vocabulary_size=str(size),
    )
