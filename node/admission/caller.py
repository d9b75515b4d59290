"""Who calls: a key, a member, or else the address that a connection comes from."""

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
THIS_MACHINE = Caller("127.0.0.1")
"""All programs of this machine, which nothing tells apart, by whichever address they call."""

NETWORK_BITS = 64
"""Of an IPv6 address: one host has all addresses of its network (RFC 4291, section 2.5.4)."""


def caller_of_key(key_id: str) -> Caller:
    """The application with a key of the fleet, wherever it calls from."""
    return Caller(f"key {key_id}")


def caller_of_member(node_id: str) -> Caller:
    """Another machine of a fleet with an authority, whatever its address."""
    return Caller(f"member {node_id[:12]}")


def caller_of(host: str) -> Caller:
    """The caller at an address such as "10.0.0.7" or "fe80::1%eth0"."""
    plain = host.partition("%")[0].removeprefix(MAPPED)
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        return NOBODY
    if address.is_loopback:
        return THIS_MACHINE
    if address.version == 4:
        return Caller(plain)
    return Caller(str(ipaddress.ip_network((plain, NETWORK_BITS), strict=False)))


def caller_of_peer(peer: str) -> Caller:
    """The caller of a gRPC peer such as "ipv4:127.0.0.1:5123" or "ipv6:%5B::1%5D:5123"."""
    return caller_of(host_of_peer(peer))


def host_of_peer(peer: str) -> str:
    """The IP address of a gRPC peer; empty for one without."""
    family, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]") if family in ("ipv4", "ipv6") else ""
