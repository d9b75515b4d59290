"""Which addresses of other people's cards a node calls."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest

from kakeya_fleet.fleet.cards.ways import Neighbourhood, neighbourhood
from scripts.simulator.cards import simulated_card

NEAR = neighbourhood(
    own=[ipaddress.ip_network("192.168.1.0/24"), ipaddress.ip_network("fd00:1::/64")],
    hosts=[ipaddress.ip_address("192.168.1.5")],
    named=[ipaddress.ip_address("10.7.3.9"), ipaddress.ip_address("93.184.216.34")],
)
NEIGHBOUR = "192.168.1.9"


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254:80",
        "[fe80::1]:7000",
        "224.0.0.251:5353",
        "0.0.0.0:7000",
        "[::]:7000",
        "255.255.255.255:1",
        "8.8.8.8:53",
        "10.8.0.1:7000",
        "93.184.217.1:7000",
        "metadata.internal:80",
        "127.0.0.1:22",
        "[::ffff:127.0.0.1]:22",
        "[::ffff:169.254.169.254]:80",
    ],
)
def test_what_a_neighbour_may_not_have_this_node_call(address: str) -> None:
    assert not NEAR.permits(address, NEIGHBOUR)


@pytest.mark.parametrize(
    ("address", "introducer"),
    [
        ("192.168.1.77:7000", NEIGHBOUR),
        ("[fd00:1::9]:7000", NEIGHBOUR),
        ("10.7.200.1:7000", NEIGHBOUR),
        ("93.184.216.99:7000", NEIGHBOUR),
        ("8.8.8.8:53", "8.8.8.8"),
        ("127.0.0.1:7000", "127.0.0.1"),
        ("127.0.0.1:7000", "::1"),
        ("127.0.0.1:7000", "192.168.1.5"),
        ("192.168.1.5:7000", "127.0.0.1"),
    ],
)
def test_what_honest_cards_have_is_called(address: str, introducer: str) -> None:
    assert NEAR.permits(address, introducer)


def test_a_node_of_its_own_machine_alone_calls_nobody_else() -> None:
    alone = Neighbourhood(frozenset(), ())
    assert alone.permits("127.0.0.1:7000", "127.0.0.1")
    assert not alone.permits("192.168.1.77:7000", "127.0.0.1")
    assert not alone.permits("127.0.0.1:7000", "")


def test_of_a_card_only_what_may_be_called_is_used() -> None:
    card = replace(
        simulated_card(1),
        addresses=("169.254.169.254:80", "192.168.1.9:7000", "8.8.8.8:53"),
        http_address="169.254.169.254:80",
        ring_address="192.168.1.9:9000",
    )
    usable = NEAR.usable(card, NEIGHBOUR)
    assert usable is not None
    assert usable.addresses == ("192.168.1.9:7000",)
    assert (usable.http_address, usable.ring_address) == ("", "192.168.1.9:9000")
    assert NEAR.usable(replace(card, addresses=("8.8.8.8:53",)), NEIGHBOUR) is None
