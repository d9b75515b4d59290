"""Who may have one more of what is scarce."""

from __future__ import annotations

from enum import StrEnum

KEPT_OF = 5
"""The last of so many parts is kept for callers who hold little."""
SHARE_OF_FREE = 4
"""Of that part a caller may hold as much as the last of so many parts of what is free."""


class Cause(StrEnum):
    """Why a caller gets no more."""

    FULL = "full"
    SHARE = "share"


def kept(most: int) -> int:
    """What is kept for callers who hold little: a fifth, rounded down."""
    return most // KEPT_OF


def refusal(most: int, used: int, held: int, amount: int = 1) -> Cause | None:
    """Why a caller who holds `held` gets no `amount` more, of `most` with `used` taken.

    Four fifths go to whoever comes first, so that one caller alone has no use for patience.
    Of the last fifth a caller may hold max(1, free / 4): who holds more than that waits until
    others have given something back, and one who holds nothing always finds a place, unless
    free / 4 + 1 callers before him did the same.
    """
    free = most - used
    if amount > free:
        return Cause.FULL
    if used + amount <= most - kept(most):
        return None
    return Cause.SHARE if held + amount > max(1, free // SHARE_OF_FREE) else None
