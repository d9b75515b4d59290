"""The machine's own addresses: which ones a bind address stands for."""

from __future__ import annotations

import errno
import ipaddress
import socket

import psutil

from kakeya_fleet.fleet.cards.ways import ip_of
from kakeya_fleet.node.admission.caller import host_of_peer
from kakeya_fleet.node.config.config import split_address
from kakeya_fleet.node.errors import BadConfig

ANY = ("0.0.0.0", "::")
"""To be bound to these is to be bound to all addresses, whichever they are later."""
_MULTICAST_DNS = "224.0.0.251"
# Of documentation (RFC 5737, RFC 3849): nowhere near, so that the default route leads there.
_FAR = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def addresses_of(host: str) -> tuple[str, ...]:
    """The IP addresses at which others reach a server bound to `host`.

    For 0.0.0.0 and ::, those of every interface but loopback and link-local
    ones, IPv4 first and of each kind that of the default route, which is no bridge of
    containers; loopback when there is no other. Raises `BadConfig` when
    the name does not resolve.
    """
    if host in ANY:
        return _of_all_interfaces() or ("127.0.0.1",)
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise BadConfig(
            f"bind = {host!r} does not resolve ({error.strerror})",
            "give an address of this machine, such as 127.0.0.1",
            key="bind",
        ) from error
    return tuple(sorted({str(entry[4][0]) for entry in found}, key=_four_first))


def is_of_this_machine(peer: str) -> bool:
    """Whether gRPC's name of a caller, such as "ipv4:127.0.0.1:5000", is of this machine."""
    return peer.startswith("unix") or is_own_address(host_of_peer(peer))


def is_own_address(address: str) -> bool:
    """Whether an IP address, with or without a zone, is loopback or one of this machine's own.

    Of a TCP caller that proves where it runs: the handshake's answer to an address of this
    machine never leaves it.
    """
    own = {
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    }
    try:
        asked = _plain(address)
    except ValueError:
        return False
    return asked.is_loopback or asked in {_plain(each) for each in own}


def source_towards(address: str) -> str:
    """The own IP address from which the kernel would call host:port now.

    Empty where it knows no way, and for a host that is a name.
    """
    host, port = split_address("peers", address)
    called = ip_of(host)
    if called is None:
        return ""
    family = socket.AF_INET6 if called.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Of UDP that sends nothing.
            probe.connect((str(called), port))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def multicast_fault(address: str) -> str | None:
    """Why the interface of an IPv4 address does not do multicast DNS; None when it does."""
    membership = socket.inet_aton(_MULTICAST_DNS) + socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "error")
            return f"the interface of {address} refuses multicast ({name}: {error.strerror})"
    return None


def _of_all_interfaces() -> tuple[str, ...]:
    found = {
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6) and "%" not in entry.address
    }
    usable = [
        address
        for address in found
        if not ipaddress.ip_address(address).is_loopback
        and not ipaddress.ip_address(address).is_link_local
    ]
    outward = _outward_addresses()
    return tuple(sorted(usable, key=lambda each: (":" in each, each not in outward, each)))


def _outward_addresses() -> set[str]:
    """The addresses with which this machine calls others by its default routes."""
    found = set()
    for family, far in _FAR:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                # Of UDP that sends nothing: the kernel chooses the way.
                probe.connect((far, 9))
            except OSError:
                continue
            found.add(str(probe.getsockname()[0]))
    return found


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Without its zone, and as IPv4 where IPv6 only wraps it. Raises `ValueError`."""
    plain = ipaddress.ip_address(address.partition("%")[0])
    return getattr(plain, "ipv4_mapped", None) or plain


def _four_first(address: str) -> tuple[bool, str]:
    return ":" in address, address
