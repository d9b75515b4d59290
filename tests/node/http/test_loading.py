"""What answers HTTP is loaded when somebody calls, and not before."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.http import server as module
from kakeya_fleet.node.http.application import HttpApplication
from kakeya_fleet.node.http.server import HttpServer
from kakeya_fleet.node.http.settings import HttpSettings
from kakeya_fleet.node.metrics import NodeMetrics
from tests.support.patience import PATIENCE_SECONDS


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    metrics = NodeMetrics()
    server = HttpServer(HttpSettings("127.0.0.1", 0), metrics, Allowances(Limits(), metrics))
    await server.start()
    yield server
    await server.close()


async def is_sent_away(server: HttpServer) -> None:
    """Whoever calls is reset, and does not wait."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(ConnectionResetError):
                await reader.readexactly(1)
    finally:
        writer.close()


async def test_the_first_call_loads_it_and_is_answered(server: HttpServer) -> None:
    await asyncio.sleep(0)
    assert server._application is None
    async with aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.get(f"http://{server.address}/metrics") as response:
                assert response.status == 200
    assert server._application is not None


async def test_nobody_called_and_the_port_is_free_again(server: HttpServer) -> None:
    await server.close()
    assert server._application is None
    with socket.create_server(("127.0.0.1", server.port)):
        pass


async def test_it_is_closed_while_it_is_loaded(server: HttpServer) -> None:
    server.load()
    await server.close()
    with socket.create_server(("127.0.0.1", server.port)):
        pass


async def test_without_a_descriptor_for_it_it_is_loaded_again(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    real = module._application_class
    faults: list[Exception] = [
        OSError(errno.EMFILE, "Too many open files"),
        ImportError("libssl.so: cannot open shared object file: Too many open files"),
    ]

    def crowded() -> type[HttpApplication]:
        if faults:
            raise faults.pop()
        return real()

    monkeypatch.setattr(module, "_application_class", crowded)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{server.address}/metrics") as response,
    ):
        assert response.status == 200
    assert not faults


async def test_what_can_never_be_loaded_is_given_up(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    tried: list[int] = []

    def broken() -> None:
        tried.append(1)
        raise ImportError("libssl.so: undefined symbol")

    monkeypatch.setattr(module, "_application_class", broken)
    await is_sent_away(server)
    assert len(tried) == module.LOADS


async def test_where_it_cannot_be_loaded_nobody_waits(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ModuleNotFoundError("No module named 'aiohttp'")

    monkeypatch.setattr(module, "_application_class", missing)
    await is_sent_away(server)
