"""The networks that this machine is on now, and the peers that its person named."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence

import psutil

from kakeya_fleet.fleet.cards.card import Card
from kakeya_fleet.fleet.cards.ways import IpAddress, Neighbourhood, Network, ip_of, neighbourhood
from kakeya_fleet.node.config.config import split_address

LOOK_SECONDS = 10.0
"""Between two looks at the interfaces: machines change networks while their agents run."""


class Surroundings:
    """Says what of a card may be called.

    A node that `stays_here`, which only its own machine reaches, calls nobody else. Names of
    `peers` (host:port) stand for the addresses that `named` was last told of.
    """

    def __init__(
        self, peers: Sequence[str], clock: Callable[[], float], *, stays_here: bool
    ) -> None:
        self._stays_here = stays_here
        self._named = {
            found for peer in peers if (found := ip_of(split_address("peers", peer)[0])) is not None
        }
        self._clock = clock
        self._looked_at = -LOOK_SECONDS
        self._near = Neighbourhood(frozenset(), ())

    def named(self, address: IpAddress) -> None:
        """A name among the seed peers stands for this address."""
        if address not in self._named:
            self._named.add(address)
            self._looked_at = -LOOK_SECONDS

    def usable(self, card: Card, introducer: str) -> Card | None:
        """See `Neighbourhood.usable`."""
        return self.now().usable(card, introducer)

    def now(self) -> Neighbourhood:
        """The neighbourhood, looked at anew every `LOOK_SECONDS`."""
        if self._clock() - self._looked_at >= LOOK_SECONDS:
            self.look()
        return self._near

    def look(self) -> bool:
        """Looks at the interfaces; whether the neighbourhood is another one now."""
        before, self._looked_at = self._near, self._clock()
        hosts, networks = _of_interfaces()
        if self._stays_here:
            self._near = Neighbourhood(frozenset(hosts), ())
        else:
            self._near = neighbourhood(networks, hosts, self._named)
        return before != self._near


def _of_interfaces() -> tuple[list[IpAddress], list[Network]]:
    """The machine's addresses besides loopback, and the networks that they are in."""
    hosts: list[IpAddress] = []
    networks: list[Network] = []
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            address = ip_of(entry.address)
            if address is None or address.is_loopback or address.is_link_local:
                continue
            hosts.append(address)
            networks.append(_network_of(address, entry.netmask))
    return hosts, networks


def _network_of(address: IpAddress, netmask: str | None) -> Network:
    """The interface's network; the address alone where none is told."""
    if netmask is None:
        return ipaddress.ip_network(str(address))
    if address.version == 6:
        bits = int(ipaddress.IPv6Address(netmask.partition("/")[0])).bit_count()
        return ipaddress.ip_network(f"{address}/{bits}", strict=False)
    return ipaddress.ip_network(f"{address}/{netmask}", strict=False)
