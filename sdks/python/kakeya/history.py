"""The client's copy of a session's history."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from kakeya.errors import HistoryLengthMismatch


class History:
    """Ids that were appended and received, oldest first, 4 bytes each.

    `in_step` tells whether the node surely holds the same: while a generation
    runs, and after one was left early, the node may have committed more.
    `pending` counts ids whose keys and values the node may still have to
    compute, as after a fork.
    """

    def __init__(self, token_ids: Sequence[int] = ()) -> None:
        self._ids = array("I", token_ids)
        self.in_step = True
        self.pending = len(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def last(self) -> int | None:
        """The latest id; None of an empty history."""
        return self._ids[-1] if self._ids else None

    def ids(self, length: int | None = None) -> tuple[int, ...]:
        """The first `length` ids; None for all."""
        return tuple(self._ids[:length])

    def append(self, token_ids: Sequence[int]) -> None:
        """Ids that the node appended and computed."""
        self._ids.extend(token_ids)
        self.in_step = True
        self.pending = 0

    def receive(self, token_ids: Sequence[int], first_index: int) -> None:
        """Ids that the node generated; raises HistoryLengthMismatch when some are missing."""
        if first_index != len(self._ids):
            raise HistoryLengthMismatch(
                f"tokens of position {first_index} arrived, the history has {len(self._ids)}; "
                "does another client use the session?"
            )
        self._ids.extend(token_ids)
        self.pending = 0

    def finish(self, length: int) -> None:
        """The node's history has `length` ids after a generation; raises as `receive`."""
        if length != len(self._ids):
            raise HistoryLengthMismatch(
                f"the node's history has {length} tokens, {len(self._ids)} arrived"
            )
        self.in_step = True

    def cut(self, length: int) -> None:
        """Keeps the first `length` ids, as the node now does."""
        del self._ids[length:]
        self.in_step = True
        self.pending = length
