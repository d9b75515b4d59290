"""Pages of other sites: those that are named may use a node, all others may not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.config.config import build
from kakeya_fleet.node.errors import NodeError
from kakeya_fleet.node.http.server import HttpServer
from kakeya_fleet.node.http.settings import HttpSettings
from kakeya_fleet.node.metrics import NodeMetrics

PAGE = "https://my.page:8443"


@pytest.fixture
async def address() -> AsyncIterator[str]:
    metrics = NodeMetrics()
    settings = HttpSettings("127.0.0.1", 0, origins=(PAGE,))
    server = HttpServer(settings, metrics, Allowances(Limits(), metrics))
    await server.start()
    yield f"http://{server.address}"
    await server.close()


async def test_a_named_page_may_ask_and_read(address: str) -> None:
    async with aiohttp.ClientSession() as session:
        asking = {
            "Origin": PAGE,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type,x-stainless-os,x-evil",
        }
        async with session.options(f"{address}/v1/messages", headers=asking) as answer:
            assert answer.status == 204
            assert answer.headers["Access-Control-Allow-Origin"] == PAGE
            allowed = answer.headers["Access-Control-Allow-Headers"]
            assert "x-api-key" in allowed
            assert "x-stainless-os" in allowed
            assert "x-evil" not in allowed
        headers = {"Origin": PAGE}
        async with session.post(f"{address}/v1/messages", json={}, headers=headers) as answer:
            # The node is not open yet; its refusal can be read all the same.
            assert answer.status == 503
            assert answer.headers["Access-Control-Allow-Origin"] == PAGE
            assert answer.headers["Vary"] == "Origin"


@pytest.mark.parametrize("origin", ["https://other.page", "https://my.page", "null", "*"])
async def test_no_other_page_may(address: str, origin: str) -> None:
    async with aiohttp.ClientSession() as session:
        asking = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        for method in ("OPTIONS", "GET"):
            async with session.request(method, f"{address}/v1/models", headers=asking) as answer:
                assert answer.status == 403
                assert "Access-Control-Allow-Origin" not in answer.headers
                assert "http_origins" in await answer.text()


@pytest.mark.parametrize(
    "origin", ["*", "my.page", "https://my.page/", "ftp://x", "https://", "http://["]
)
def test_an_origin_names_one_site(origin: str) -> None:
    with pytest.raises(NodeError, match="http_origins"):
        build({"http_origins": [origin]}, {})
    assert build({"http_origins": [PAGE]}, {}).http_origins == (PAGE,)
