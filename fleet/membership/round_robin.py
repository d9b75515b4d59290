"""Shuffled round-robin (SWIM, Das et al. 2002, section 4.3).

Every peer is visited once in a pass of random order, so that a death is met
after at most 2N - 1 visits, and a newcomer is visited within the pass.
"""

from __future__ import annotations

from collections.abc import Callable

from kakeya_fleet.fleet.membership.randomness import Randomness


class RoundRobin:
    """The order in which peers are visited."""

    def __init__(self) -> None:
        self._order: list[str] = []
        self._present: set[str] = set()
        self._next = 0

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._present

    def add(self, node_id: str, rng: Randomness) -> None:
        """Inserts a peer at a random place of what is left of the pass."""
        if node_id in self._present:
            return
        self._present.add(node_id)
        left = len(self._order) - self._next
        self._order.insert(self._next + int(rng.random() * (left + 1)), node_id)

    def discard(self, node_id: str) -> None:
        """Takes a peer out, if it is there."""
        if node_id not in self._present:
            return
        self._present.remove(node_id)
        index = self._order.index(node_id)
        del self._order[index]
        if index < self._next:
            self._next -= 1

    def visit(self, rng: Randomness) -> str | None:
        """The next peer; None when there is none. A new pass is shuffled."""
        if not self._order:
            return None
        if self._next >= len(self._order):
            rng.shuffle(self._order)
            self._next = 0
        self._next += 1
        return self._order[self._next - 1]

    def sample(self, count: int, fits: Callable[[str], bool], rng: Randomness) -> list[str]:
        """Up to `count` different peers that fit, at random; looks at few where most fit."""
        left = self._order.copy()
        found: list[str] = []
        while left and len(found) < count:
            index = int(rng.random() * len(left))
            left[index], left[-1] = left[-1], left[index]
            peer = left.pop()
            if fits(peer):
                found.append(peer)
        return found
