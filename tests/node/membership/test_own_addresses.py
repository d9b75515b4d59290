"""Where a node answers, as its machine's interfaces change."""

import socket
from types import SimpleNamespace

import psutil
import pytest

from kakeya_fleet.node.membership import network
from kakeya_fleet.node.membership.own_addresses import OwnAddresses


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The machine's IPv4 addresses besides loopback, as a test changes them."""
    present = ["192.168.1.20"]

    def found() -> dict[str, list[SimpleNamespace]]:
        return {
            "any": [
                SimpleNamespace(family=socket.AF_INET, address=each)
                for each in ("127.0.0.1", *present)
            ]
        }

    monkeypatch.setattr(psutil, "net_if_addrs", found)
    monkeypatch.setattr(network, "_outward_addresses", set)
    return present


def test_those_of_a_node_bound_to_all_follow_the_machine(interfaces: list[str]) -> None:
    own = OwnAddresses("0.0.0.0", 7600)
    assert [*own.addresses] == ["192.168.1.20:7600"]
    assert not own.look()
    interfaces[:] = ["192.168.1.35", "10.8.0.2"]
    assert own.look()
    assert [*own.addresses] == ["10.8.0.2:7600", "192.168.1.35:7600"]


def test_while_there_is_no_network_the_last_ones_stay(interfaces: list[str]) -> None:
    own = OwnAddresses("0.0.0.0", 7600)
    interfaces.clear()
    assert not own.look()
    assert own.hosts == ("192.168.1.20",)


def test_one_that_starts_without_a_network_answers_on_it_later(interfaces: list[str]) -> None:
    interfaces.clear()
    own = OwnAddresses("0.0.0.0", 7600)
    assert (own.hosts, own.stays_here) == (("127.0.0.1",), False)
    interfaces.append("192.168.1.20")
    assert own.look()
    assert own.hosts == ("192.168.1.20",)


def test_an_address_that_a_node_is_bound_to_alone_is_missed(interfaces: list[str]) -> None:
    own = OwnAddresses("192.168.1.20", 7600)
    assert own.lost() == ""
    interfaces[:] = ["192.168.1.35"]
    assert not own.look()
    assert (own.hosts, own.lost()) == (("192.168.1.20",), "192.168.1.20")
    interfaces.append("192.168.1.20")
    assert own.lost() == ""


@pytest.mark.usefixtures("interfaces")
def test_loopback_stays_here() -> None:
    assert OwnAddresses("127.0.0.1", 7600).stays_here
    assert not OwnAddresses("192.168.1.20", 7600).stays_here
