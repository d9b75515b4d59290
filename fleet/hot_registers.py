"""Registers that changed lately, and ride on the next messages.

Each rides `REPEATS * ceil(log2(N + 1))` times, the least told first and of equals
the newest: enough to reach nearly all of N nodes; the digests bring the rest
(Demers et al. 1987).
"""

from __future__ import annotations

REPEATS = 2


class HotRegisters:
    """Node ids whose card, or whose liveness, is news; one instance for each."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._told)

    def heat(self, node_id: str) -> None:
        """Makes the node's register news, anew if it was."""
        self._told.pop(node_id, None)
        self._told[node_id] = 0

    def cool(self, node_id: str) -> None:
        """Drops the node, if it is news."""
        self._told.pop(node_id, None)

    def take(self, count: int, node_count: int) -> list[str]:
        """Up to `count` ids to tell in one message, counted as told."""
        most = REPEATS * node_count.bit_length()
        chosen = sorted(reversed(self._told), key=self._told.__getitem__)[:count]
        for node_id in chosen:
            self._told[node_id] += 1
            if self._told[node_id] >= most:
                del self._told[node_id]
        return chosen
