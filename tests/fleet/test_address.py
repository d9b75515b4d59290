from __future__ import annotations

import pytest

from kakeya_fleet.fleet.cards.address import parse_address


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:80", "127.0.0.1", 80),
        ("mini-1.local:65535", "mini-1.local", 65535),
        ("[fe80::1]:7000", "fe80::1", 7000),
    ],
)
def test_host_and_port(address: str, host: str, port: int) -> None:
    assert parse_address(address) == (host, port)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "host",
        "host:",
        ":80",
        "host:0",
        "host:65536",
        "host:8０",
        "host:-1",
        "fe80::1:7000",
        "[host]:80",
        "ho st:80",
        "unix:///tmp/x:80",
        "a" * 254 + ":80",
        "host\n:80",
    ],
)
def test_everything_else_is_refused(address: str) -> None:
    with pytest.raises(
        ValueError, match=r"host:port|port|host|address|Expected|Octet|permitted|colon"
    ):
        parse_address(address)
