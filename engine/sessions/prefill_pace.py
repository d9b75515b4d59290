"""How long a verifier takes to compute keys and values, as its sessions saw it."""

from __future__ import annotations

REMEMBERED_TOKENS = 8192
"""What was seen before so many tokens counts half."""


class PrefillPace:
    """Seconds a token, waits for turns included: that is what a session would wait again.

    Any thread may call; a reader may see the token count of one prefill with the seconds of the
    one before.
    """

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def record(self, token_count: int, seconds: float) -> None:
        """`token_count` > 0 tokens were computed in `seconds`."""
        kept = 0.5 ** (token_count / REMEMBERED_TOKENS)
        self._tokens = kept * self._tokens + token_count
        self._seconds = kept * self._seconds + seconds

    def seconds(self, token_count: int) -> float | None:
        """What computing `token_count` tokens takes; None before anything was seen."""
        return token_count * self._seconds / self._tokens if self._tokens else None
