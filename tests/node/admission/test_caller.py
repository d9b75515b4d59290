"""Whose share a connection's address stands for."""

from __future__ import annotations

import pytest

from kakeya_fleet.node.admission.caller import NOBODY, caller_of, caller_of_peer


@pytest.mark.parametrize(
    ("host", "caller"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("::1", "127.0.0.1"),
        ("127.1.2.3", "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:9::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", NOBODY),
        ("nonsense", NOBODY),
    ],
)
def test_an_address_is_one_caller_and_so_is_a_network_of_ipv6(host: str, caller: str) -> None:
    assert caller_of(host) == caller


@pytest.mark.parametrize(
    ("peer", "caller"),
    [
        ("ipv4:127.0.0.1:5123", "127.0.0.1"),
        ("ipv6:%5B::1%5D:5123", "127.0.0.1"),
        ("ipv6:[2001:db8::7]:5123", "2001:db8::/64"),
        ("unix:", NOBODY),
        ("unknown", NOBODY),
    ],
)
def test_the_port_of_a_grpc_peer_says_nothing(peer: str, caller: str) -> None:
    assert caller_of_peer(peer) == caller
