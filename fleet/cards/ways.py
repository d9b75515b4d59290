"""Which of a card's addresses a node may call: those of its own neighbourhood.

A card is its owner's word, and who believes it calls where its author pleases. A node calls
an address that is

- an IP address, and not unspecified, multicast, link-local or reserved: no metadata services
  of clouds (169.254.169.254), no broadcasts;
- on loopback: when the card came from this machine;
- elsewhere: in a network of its own interfaces, in that of a peer that a person named, or the
  host itself from which the card came, which a TCP connection has proved.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass, replace

from kakeya_fleet.fleet.cards.address import parse_address
from kakeya_fleet.fleet.cards.card import Card

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """`hosts` are the own addresses besides loopback; `networks` where else nodes are called."""

    hosts: frozenset[IpAddress]
    networks: tuple[Network, ...]

    def usable(self, card: Card, introducer: str) -> Card | None:
        """The card without what must not be called; None when nothing is left to call.

        `introducer` is the IP address that the card came from.
        """
        addresses = tuple(each for each in card.addresses if self.permits(each, introducer))
        if not addresses:
            return None
        if addresses == card.addresses and not (card.http_address or card.ring_address):
            return card
        return replace(
            card,
            addresses=addresses,
            http_address=self._kept(card.http_address, introducer),
            ring_address=self._kept(card.ring_address, introducer),
        )

    def permits(self, address: str, introducer: str) -> bool:
        """Whether host:port may be called, as told from the IP address `introducer`."""
        called = ip_of(_host_of(address))
        if called is None or _never_called(called):
            return False
        source = ip_of(introducer)
        if called.is_loopback:
            return source is not None and self.is_here(source)
        return called == source or called in self.hosts or self._is_near(called)

    def is_here(self, address: IpAddress) -> bool:
        """Whether it is this machine's own."""
        return address.is_loopback or address in self.hosts

    def _is_near(self, address: IpAddress) -> bool:
        return any(address in network for network in self.networks)

    def _kept(self, address: str, introducer: str) -> str:
        return address if address and self.permits(address, introducer) else ""


def network_around(address: IpAddress) -> Network:
    """The network that a named peer stands for.

    IPv4: 16 bits where addresses are not global (offices, private overlays), else 24;
    IPv6: 64 bits, one link.
    """
    if address.version == 6:
        return ipaddress.ip_network(f"{address}/64", strict=False)
    return ipaddress.ip_network(f"{address}/{24 if address.is_global else 16}", strict=False)


def neighbourhood(
    own: Collection[Network], hosts: Collection[IpAddress], named: Collection[IpAddress]
) -> Neighbourhood:
    """That of a node on the networks `own`, whose person named peers at `named`."""
    around = (network_around(each) for each in named if not each.is_loopback)
    return Neighbourhood(frozenset(hosts), tuple(dict.fromkeys((*own, *around))))


def ip_of(text: str) -> IpAddress | None:
    """The IP address, IPv4 where IPv6 only wraps it, without its zone; None for a name."""
    try:
        plain = ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = plain.ipv4_mapped if isinstance(plain, ipaddress.IPv6Address) else None
    return mapped or plain


def _host_of(address: str) -> str:
    try:
        return parse_address(address)[0]
    except ValueError:
        return ""


def _never_called(address: IpAddress) -> bool:
    return (
        address.is_unspecified
        or address.is_multicast
        or address.is_link_local
        or (address.is_reserved and not address.is_loopback)
    )
