"""Which of their addresses nodes are called at, and which channels stay open for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.cards.ways import ip_of
from kakeya_fleet.fleet.membership.registry import Registry
from kakeya_fleet.node.config.config import split_address
from kakeya_fleet.node.membership.exchange_client import Answered
from kakeya_fleet.node.membership.peers import Peers
from kakeya_fleet.node.membership.surroundings import Surroundings


class CalledAddresses:
    """The addresses host:port that one node's gossip calls. Belongs to its event loop."""

    def __init__(self, registry: Registry, peers: Peers, surroundings: Surroundings) -> None:
        self._registry = registry
        self._peers = peers
        self._surroundings = surroundings
        self._under_way: Counter[str] = Counter()
        self._hosts: dict[str, str] = {}
        self.may_prune = False
        """Whether a call has ended since the last `prune`."""

    @property
    def is_calling(self) -> bool:
        """Whether a call is under way."""
        return bool(self._under_way)

    def of(self, node_id: str) -> str:
        """Where a node is called. Raises `fleet.errors.NodeNotFound`."""
        return self._peers.choose(node_id, self._registry.card(node_id).addresses)

    def failed(self, node_id: str, address: str) -> None:
        """The node did not answer there: another of its addresses is called next."""
        if node_id in self._registry:
            self._peers.failed(node_id, address, self._registry.card(node_id).addresses)

    def answered(self, address: str, answered: Answered) -> None:
        """Of a node that is known, only what is measured at its own addresses counts."""
        node_id = answered.sender_id
        if node_id not in self._registry or address in self._registry.card(node_id).addresses:
            self._peers.record_round_trip(node_id, answered.round_trip_seconds, address)

    @contextmanager
    def calling(self, address: str) -> Iterator[None]:
        """Keeps the channel to the address until the call has ended, and no longer for it."""
        self._under_way[address] += 1
        try:
            yield
        finally:
            self._under_way -= Counter((address,))
            self.may_prune = True

    async def resolve(self, address: str) -> None:
        """Notes what a seed peer's name stands for, so that its fleet's cards are taken.

        Names are given by persons alone: what the network announces and what is remembered
        are IP addresses.
        """
        host, port = split_address("peers", address)
        if ip_of(host) is not None:
            return
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port)
        except OSError:
            # The call that follows fails by the same name, and people are told of that.
            return
        for entry in found:
            named = ip_of(str(entry[4][0]))
            if named is not None:
                self._surroundings.named(named)
                self._hosts[host] = str(named)

    def host(self, address: str) -> str:
        """The IP address that the host of `address` stands for, as far as it was resolved."""
        host = split_address("peers", address)[0]
        return self._hosts.get(host, host)

    def is_members(self, address: str) -> bool:
        """Whether it is an address of a node that was in the fleet, alive or not."""
        return any(address in record.card.addresses for record in self._registry.records())

    async def prune(self) -> None:
        """Closes the channels to where nobody of the fleet answers.

        An open channel goes on calling by itself: one to a dead node or a stranger is kept
        for a call alone.
        """
        self.may_prune = False
        registry = self._registry
        present = [
            record.card for record in registry.records() if record.liveness is not Liveness.LEFT
        ]
        addresses = {
            address
            for card in present
            if not registry.is_stranger(card.node_id)
            and not registry.liveness(card.node_id).is_tombstone
            for address in card.addresses
        }
        nodes = {card.node_id for card in present}
        await self._peers.prune(addresses | self._under_way.keys(), nodes)
