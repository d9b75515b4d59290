"""Carries messages between nodes, and counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kakeya_fleet.fleet.membership.randomness import Randomness
from scripts.simulator.agenda import Agenda
from scripts.simulator.faults import Cut, Weather, whole
from scripts.simulator.node import SimulatedNode


class Network:
    """All nodes by id and by address; what is sent reaches them as `weather` and `is_cut` allow.

    `sent_bytes` and `sent_count` are of every node's messages, whether they arrived or not.
    """

    def __init__(self, agenda: Agenda, rng: Randomness, weather: Weather) -> None:
        self.nodes: dict[str, SimulatedNode] = {}
        self.weather = weather
        self.is_cut: Cut = whole
        self.sent_bytes: Counter[str] = Counter()
        self.sent_count = 0
        self._ids_by_address: dict[str, str] = {}
        self._agenda = agenda
        self._rng = rng

    def join(self, node: SimulatedNode, addresses: tuple[str, ...]) -> None:
        """The node answers at its addresses, in the place of whoever did."""
        self.nodes[node.node_id] = node
        self._ids_by_address.update(dict.fromkeys(addresses, node.node_id))

    def at(self, address: str) -> str | None:
        """Who answers at host:port; None when nobody does."""
        return self._ids_by_address.get(address)

    def send(self, sender: str, receiver: str, size: int, action: Callable[[], None]) -> None:
        """Runs `action` at the receiver once the message of `size` bytes is there, if it comes."""
        self.sent_bytes[sender] += size
        self.sent_count += 1
        weather, rng = self.weather, self._rng
        node = self.nodes.get(receiver)
        if node is None or self.is_cut(sender, receiver):
            return
        copies = 2 if weather.duplicates and rng.random() < weather.duplicates else 1
        for _ in range(copies):
            if rng.random() >= weather.loss:
                self._agenda.after(weather.delay(rng), lambda: node.do(action))
