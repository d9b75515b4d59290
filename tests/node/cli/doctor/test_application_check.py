"""Ports for applications, looked at as clients on other machines find them."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from kakeya_fleet.node.cli.doctor import application_check
from kakeya_fleet.node.trust.tls import authorities_pem, kept_https_context
from kakeya_fleet.node.trust.trust import Trust
from tests.support.trusted_nodes import fleet_of

HERE = "127.0.0.1"


async def found(shown: Trust, trusted: Trust, protocol: str) -> tuple[str, bool]:
    """What is told of a port with a member's certificate, for who trusts a fleet."""
    server = await asyncio.start_server(lambda *_: None, HERE, 0, ssl=kept_https_context(shown))
    port = server.sockets[0].getsockname()[1]
    authorities = authorities_pem(trusted).decode("ascii")
    way = await application_check._way(authorities, protocol, HERE, port)
    server.close()
    return way.fault, way.is_named


async def test_a_port_is_told_by_its_certificate(tmp_path: Path) -> None:
    (home,), (other,) = fleet_of(tmp_path / "home", 1), fleet_of(tmp_path / "other", 1)
    grpc, https = application_check.GRPC, application_check.HTTPS
    assert await found(home, home, grpc) == ("", True)
    # Of a member that has asked no keeper for the names of its hosts.
    assert await found(home, home, https) == ("", False)
    fault, _ = await found(other, home, grpc)
    assert fault.startswith("its certificate: ")


async def test_a_port_where_nobody_listens_is_told(tmp_path: Path) -> None:
    (home,) = fleet_of(tmp_path / "home", 1)
    with socket.create_server((HERE, 0)) as taken:
        port = taken.getsockname()[1]
    authorities = authorities_pem(home).decode("ascii")
    way = await application_check._way(authorities, application_check.GRPC, HERE, port)
    assert way.fault
