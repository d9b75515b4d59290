"""Who calls: today the address that a connection comes from."""

from __future__ import annotations

import ipaddress
from typing import NewType
from urllib.parse import unquote

Caller = NewType("Caller", str)
"""Whoever has one share. Compared only, and shown to the operator."""

NOBODY = Caller("")
"""A caller without an address: a Unix socket, or a connection that has gone."""

MAPPED = "::ffff:"
"""Before an IPv4 address at a socket of both families (RFC 4291, section 2.5.5.2)."""
NETWORK_BITS = 64
"""Of an IPv6 address: one host has all addresses of its network (RFC 4291, section 2.5.4)."""


def caller_of(host: str) -> Caller:
    """The caller at an address such as "10.0.0.7" or "fe80::1%eth0"."""
    plain = host.partition("%")[0].removeprefix(MAPPED)
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        return NOBODY
    if address.version == 4 or address.is_loopback:
        return Caller(plain)
    return Caller(str(ipaddress.ip_network((plain, NETWORK_BITS), strict=False)))


def caller_of_peer(peer: str) -> Caller:
    """The caller of a gRPC peer such as "ipv4:127.0.0.1:5123" or "ipv6:%5B::1%5D:5123"."""
    family, _, address = unquote(peer).partition(":")
    if family not in ("ipv4", "ipv6"):
        return NOBODY
    return caller_of(address.rpartition(":")[0].strip("[]"))
