"""Follows the machine's addresses while its node runs: DHCP, VPNs, another network."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import structlog

from kakeya_fleet.node.membership.card_maker import CardMaker
from kakeya_fleet.node.membership.discovery import Discovery
from kakeya_fleet.node.membership.gossip import Gossip
from kakeya_fleet.node.membership.own_addresses import OwnAddresses
from kakeya_fleet.node.membership.peers import Peers
from kakeya_fleet.node.membership.surroundings import Surroundings
from kakeya_fleet.node.watch.event_log import EventKind, EventLog

LOOK_SECONDS = 2.0
"""Between two looks: within the time in which a fleet of two buries a node that moved."""

_log = structlog.get_logger(__name__)


class AddressWatch:
    """Has everybody who needs it know where the node answers now. Belongs to the event loop."""

    def __init__(
        self,
        own: OwnAddresses,
        surroundings: Surroundings,
        peers: Peers,
        gossip: Gossip,
        card_maker: CardMaker,
        discovery: Discovery,
        events: EventLog,
        http_address: Callable[[], str],
    ) -> None:
        """`http_address` gives what the card says of HTTP."""
        self._own = own
        self._surroundings = surroundings
        self._peers = peers
        self._gossip = gossip
        self._card_maker = card_maker
        self._discovery = discovery
        self._events = events
        self._http_address = http_address
        self._lost = ""
        self._is_elsewhere = False
        self.on_move: list[Callable[[], None]] = []
        """Called when the node answers elsewhere."""

    async def run(self) -> None:
        """Looks every `LOOK_SECONDS` until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Looks once, and acts on what changed.

        While connections take all files that may be open nothing changes: to look takes one.
        """
        before = self._own.addresses
        try:
            # Until it is acted on: what is looked at next may fail where this did not.
            self._is_elsewhere |= self._surroundings.look()
            has_moved = self._own.look()
            self._tell_of_loss()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            return
        if not self._is_elsewhere and not has_moved:
            return
        self._is_elsewhere = False
        await self._peers.reroute()
        if has_moved:
            self._move(before)
        self._gossip.moved()
        await self._gossip.spread(LOOK_SECONDS)

    def _move(self, before: tuple[str, ...]) -> None:
        addresses = self._own.addresses
        _log.info("addresses_changed", before=before, now=addresses)
        self._gossip.announce(self._card_maker.move(addresses, self._http_address()))
        self._discovery.move(self._own.hosts)
        for tell in self.on_move:
            tell()
        self._events.add(
            EventKind.ADDRESSES_CHANGED,
            f"This node answers at {', '.join(addresses)} now; before at {', '.join(before)}.",
        )

    def _tell_of_loss(self) -> None:
        """A server is bound for good: what it lost is back when the machine has it again."""
        lost, told = self._own.lost(), self._lost
        self._lost = lost
        if lost and lost != told:
            _log.warning("bound_address_gone", address=lost)
            self._events.add(
                EventKind.BOUND_ADDRESS_GONE,
                f"This machine has the address {lost} no more, to which this node is bound alone: "
                "others do not reach it.",
            )
