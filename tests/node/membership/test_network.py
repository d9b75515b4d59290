"""Which addresses are this machine's own, and which of them others are told first."""

import socket
from types import SimpleNamespace

import psutil
import pytest

from kakeya_fleet.node.membership import network
from kakeya_fleet.node.membership.network import (
    addresses_of,
    is_of_this_machine,
    is_own_address,
)


@pytest.fixture(autouse=True)
def interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback, a bridge of containers, the network, and what IPv6 adds."""

    def entry(family: int, address: str) -> SimpleNamespace:
        return SimpleNamespace(family=family, address=address)

    found = {
        "lo": [entry(socket.AF_INET, "127.0.0.1"), entry(socket.AF_INET6, "::1")],
        "docker0": [entry(socket.AF_INET, "172.17.0.1")],
        "eth0": [
            entry(socket.AF_INET, "192.168.1.20"),
            entry(socket.AF_INET6, "fd00::20"),
            entry(socket.AF_INET6, "fe80::20%eth0"),
            entry(-1, "aa:bb:cc:dd:ee:ff"),
        ],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)
    monkeypatch.setattr(network, "_outward_addresses", lambda: {"192.168.1.20"})


OWN = ("127.0.0.1", "127.9.9.9", "::1", "192.168.1.20", "172.17.0.1", "fd00::20", "fe80::20%eth0")
WRAPPED = ("::ffff:192.168.1.20", "::ffff:127.0.0.1")


@pytest.mark.parametrize("address", [*OWN, *WRAPPED])
def test_own_addresses(address: str) -> None:
    assert is_own_address(address)


@pytest.mark.parametrize("address", ["192.168.1.21", "fd00::21", "10.0.0.1", "mini-1", ""])
def test_addresses_of_elsewhere(address: str) -> None:
    assert not is_own_address(address)


@pytest.mark.parametrize(
    ("peer", "is_own"),
    [
        ("ipv4:192.168.1.20:5000", True),
        ("ipv6:%5Bfd00::20%5D:5000", True),
        ("ipv6:[fe80::20%25eth0]:5000", True),
        ("unix:", True),
        ("ipv4:192.168.1.21:5000", False),
        ("ipv6:%5Bfd00::21%5D:5000", False),
        ("vsock:3:5000", False),
    ],
)
def test_callers_of_this_machine_are_known_by_their_address(peer: str, is_own: bool) -> None:
    assert is_of_this_machine(peer) is is_own


def test_the_address_of_the_default_route_is_told_first_of_all() -> None:
    """In the order of digits a bridge of containers would be, which nobody else reaches."""
    assert addresses_of("0.0.0.0") == ("192.168.1.20", "172.17.0.1", "fd00::20")
