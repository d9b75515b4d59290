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
    compute, as after a fork. `prefill_seconds` is what the node took to compute
    the prompt: all that was appended since it generated last. With it the node computed
    `recomputed_token_count` positions once more that it had before.
    """

    def __init__(self, token_ids: Sequence[int] = ()) -> None:
        self._ids = array("I", token_ids)
        self.in_step = True
        self.pending = len(self._ids)
        self.prefill_seconds = 0.0
        self.recomputed_token_count = 0
        # Whether the ids at the end are the node's own, so that the next begin a prompt.
        self._is_answered = False

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def last(self) -> int | None:
        """The latest id; None of an empty history."""
        return self._ids[-1] if self._ids else None

    def ids(self, length: int | None = None) -> tuple[int, ...]:
        """The first `length` ids; None for all."""
        return tuple(self._ids[:length])

    def append(
        self,
        token_ids: Sequence[int],
        prefill_seconds: float = 0.0,
        recomputed_token_count: int = 0,
    ) -> None:
        """Ids that the node appended and computed, in so many seconds."""
        if self._is_answered:
            self.prefill_seconds = 0.0
            self.recomputed_token_count = 0
            self._is_answered = False
        self.prefill_seconds += prefill_seconds
        self.recomputed_token_count += recomputed_token_count
        self._ids.extend(token_ids)
        self.in_step = True
        self.pending = 0

    def moved(self) -> None:
        """Another node has appended and computed all of it."""
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
        self._is_answered = True

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
