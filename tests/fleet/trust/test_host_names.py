"""Which names and addresses keepers certify: such as mean nothing outside of a home."""

from __future__ import annotations

import pytest

from kakeya_fleet.fleet.trust.host_names import MOST, HostNames, certifiable


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("mini-1", True),
        ("Mini-1.local", True),
        ("mini-1.local.", True),
        ("mini.home.arpa", True),
        ("a.b.internal", True),
        ("localhost", True),
        ("example.com", False),
        ("mini-1.local.example.com", False),
        ("notlocal", True),
        ("x.notlocal", False),
        ("*.local", False),
        ("*", False),
        ("-a.local", False),
        ("a_b.local", False),
        ("a..local", False),
        ("a" * 64 + ".local", False),
        ("member.kakeya", False),
    ],
)
def test_names_are_such_as_no_public_authority_gives(name: str, *, may: bool) -> None:
    asked = HostNames.of([name], [])
    assert certifiable(asked) == (asked if may else HostNames())


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("192.168.1.20", True),
        ("10.0.0.1", True),
        ("172.16.0.1", True),
        ("100.64.0.7", True),
        ("127.0.0.1", True),
        ("::1", True),
        ("fd00::7", True),
        ("fe80::1", True),
        ("8.8.8.8", False),
        ("2001:4860:4860::8888", False),
        ("0.0.0.0", False),
        ("224.0.0.251", False),
    ],
)
def test_addresses_are_such_as_are_nobodys_on_the_internet(address: str, *, may: bool) -> None:
    asked = HostNames.of([], [address])
    assert certifiable(asked) == (asked if may else HostNames())


def test_a_global_address_is_certified_for_whoever_calls_from_it() -> None:
    asked = HostNames.of([], ["8.8.8.8", "8.8.4.4"])
    assert certifiable(asked, "8.8.8.8") == HostNames.of([], ["8.8.8.8"])
    assert certifiable(asked, "::ffff:8.8.4.4") == HostNames.of([], ["8.8.4.4"])


def test_there_is_an_end_to_what_one_certificate_names() -> None:
    many = HostNames.of((f"n{n}" for n in range(500)), (f"10.0.0.{n}" for n in range(1, 255)))
    found = certifiable(many)
    assert (len(found.names), len(found.addresses)) == (MOST, MOST)


def test_what_is_lacking_is_known() -> None:
    has = HostNames.of(["a", "b"], ["10.0.0.1"])
    assert not has.lacks(HostNames.of(["a"], []))
    assert has.lacks(HostNames.of(["c"], []))
    assert has.lacks(HostNames.of([], ["10.0.0.2"]))
