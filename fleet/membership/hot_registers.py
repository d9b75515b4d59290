"""Registers that changed lately, and ride on the next messages.

Each rides `REPEATS * ceil(log2(N + 1))` times, the least told first and of equals
the newest: enough to reach nearly all of N nodes; the digests bring the rest
(Demers et al. 1987).
"""

from __future__ import annotations

import heapq

REPEATS = 3


class HotRegisters:
    """Node ids whose card, or whose liveness, is news; one instance for each."""

    def __init__(self) -> None:
        # Times told, and minus the number of the heating: sorts least told, newest first.
        self._told: dict[str, tuple[int, int]] = {}
        self._heatings = 0

    def __len__(self) -> int:
        return len(self._told)

    def heat(self, node_id: str) -> None:
        """Makes the node's register news, anew if it was."""
        self._heatings += 1
        self._told[node_id] = (0, -self._heatings)

    def cool(self, node_id: str) -> None:
        """Drops the node, if it is news."""
        self._told.pop(node_id, None)

    def take(self, count: int, node_count: int) -> list[str]:
        """Up to `count` ids to tell in one message, counted as told."""
        most = REPEATS * node_count.bit_length()
        chosen = heapq.nsmallest(count, self._told, key=self._told.__getitem__)
        for node_id in chosen:
            told, heating = self._told[node_id]
            if told + 1 < most:
                self._told[node_id] = (told + 1, heating)
            else:
                del self._told[node_id]
        return chosen
