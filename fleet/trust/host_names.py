"""Names and addresses that a member's certificate may have besides its node's own.

Clients of HTTP compare the name or the address that they called with the certificate: gRPC's
clients, which ask for members by a name of their own, do not need it. What a keeper certifies
must mean nothing outside of a home or an office, for people may have their whole machine trust
the fleet's authorities: names that no public authority gives either, and addresses that are
nobody's on the internet. A global address is certified for whoever calls the keeper from it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from kakeya_fleet.fleet.cards.ways import IpAddress, ip_of

MOST = 32
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
# RFC 6762, RFC 8375, and ICANN's resolution 2024.07.29.06; one label is a name of the own network.
_NAME = re.compile(rf"{_LABEL}|({_LABEL}\.)+(local|home\.arpa|internal|localhost)")
_SHARED = ipaddress.ip_network("100.64.0.0/10")
"""RFC 6598: addresses of private overlays."""


@dataclass(frozen=True, slots=True)
class HostNames:
    """Names in lower case, without a dot at the end, and IP addresses."""

    names: frozenset[str] = frozenset()
    addresses: frozenset[IpAddress] = field(default_factory=frozenset)

    @classmethod
    def of(cls, names: Iterable[str], addresses: Iterable[str]) -> HostNames:
        """Of texts; what is neither name nor address is left out."""
        found = (ip_of(each) for each in addresses)
        plain = (name.lower().rstrip(".") for name in names)
        return cls(frozenset(filter(None, plain)), frozenset(filter(None, found)))

    def lacks(self, wanted: HostNames) -> bool:
        """Whether some of `wanted` is not among these."""
        return not (wanted.names <= self.names and wanted.addresses <= self.addresses)


def certifiable(asked: HostNames, caller_host: str = "") -> HostNames:
    """What of it a keeper certifies for one who asks from the IP address `caller_host`."""
    caller = ip_of(caller_host)
    names = sorted(name for name in asked.names if _NAME.fullmatch(name))
    addresses = sorted(
        (each for each in asked.addresses if _is_near(each) or each == caller),
        key=lambda each: (each.version, int(each)),
    )
    return HostNames(frozenset(names[:MOST]), frozenset(addresses[:MOST]))


def _is_near(address: IpAddress) -> bool:
    if address.is_unspecified or address.is_multicast:
        return False
    is_shared = address.version == 4 and address in _SHARED
    return is_shared or address.is_private or address.is_link_local
