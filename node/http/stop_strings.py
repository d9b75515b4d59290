"""Stop strings in a stream of text."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Lets text through up to the first stop string, which it swallows.

    Text is held back while its end may be the beginning of a stop string. The
    one that is complete first ends the text, and of several that end together
    the longest: so that the cuts between pieces change nothing.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops` are not empty."""
        self._stops = tuple(stops)
        self._held = ""
        self._stopped_at: str | None = None

    @property
    def stopped_at(self) -> str | None:
        """The stop string that came; None before one came."""
        return self._stopped_at

    def push(self, text: str) -> str:
        """What of the text so far is let through now; nothing once a stop string came."""
        if self._stopped_at is not None:
            return ""
        self._held += text
        found = [
            (start + len(stop), start, stop)
            for stop in self._stops
            if (start := self._held.find(stop)) >= 0
        ]
        if found:
            _end, start, self._stopped_at = min(found)
            through, self._held = self._held[:start], ""
            return through
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        through = self._held[: len(self._held) - keep]
        self._held = self._held[len(through) :]
        return through

    def flush(self) -> str:
        """What is held back, when no more text comes."""
        through, self._held = self._held, ""
        return through


def _overlap(text: str, stop: str) -> int:
    """The most characters at the end of `text` that begin `stop`, less than all of it."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
