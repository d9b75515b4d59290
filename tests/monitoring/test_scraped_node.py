"""A real node: what Prometheus finds, and what it scrapes there."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from kakeya_fleet.node.app.composition import open_node
from kakeya_fleet.node.app.node import Node
from kakeya_fleet.node.config.config import build
from tests.monitoring.conftest import Family, FindFamily

ASKS_FOR_OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;q=0.5"


Scraped = tuple[list[dict[str, Any]], str, str]
"""Target groups, then the metrics as plain text and as OpenMetrics."""


@pytest.fixture
async def scraped(tmp_path: Path) -> Scraped:
    """/sd/prometheus of a node, and /metrics at the target that it names, in both formats."""
    ready: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()

    def on_event(event: Mapping[str, object]) -> None:
        if event["event"] == "ready":
            ready.set_result(event)

    settings = {"name": "mini-1", "fleet_name": "scraped", "state": str(tmp_path / "state")}
    settings |= {"bind": "127.0.0.1:0", "http_bind": "127.0.0.1:0"}
    fast = {"mdns": False, "links": "grpc", "drain_seconds": 0.1, "serve": ("proposer=ngram",)}
    opened: asyncio.Future[Node] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        async with open_node(build(settings | fast, {}), on_event) as node:
            opened.set_result(node)
            await node.serve()

    running = asyncio.ensure_future(run())
    async with asyncio.timeout(30), aiohttp.ClientSession() as http:
        either: set[asyncio.Future[Any]] = {running, ready}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        address = (await ready)["http_address"]
        async with http.get(f"http://{address}/sd/prometheus") as answer:
            assert answer.content_type == "application/json"
            groups = json.loads(await answer.text())
        [target] = groups[0]["targets"]
        async with http.get(f"http://{target}/metrics") as answer:
            plain = await answer.text()
        accept = {"Accept": ASKS_FOR_OPENMETRICS}
        async with http.get(f"http://{target}/metrics", headers=accept) as answer:
            assert answer.content_type == "application/openmetrics-text"
            open_metrics = await answer.text()
        (await opened).leave(0.1)
        await running
    return groups, plain, open_metrics


def names(exposed: Iterable[Metric]) -> set[str]:
    return {family.name for family in exposed}


async def test_prometheus_finds_the_node_and_its_metrics(
    scraped: Scraped, families: list[Family], family_of: FindFamily
) -> None:
    groups, plain, open_metrics = scraped
    [group] = groups
    labels = group["labels"]
    assert labels["node"] == "mini-1"
    assert labels["fleet"] == "scraped"
    assert labels["roles"] == "proposer"

    # The plain format tells when a counter began as a gauge beside it.
    exposed = {name for name in names(plain_families(plain)) if not name.endswith("_created")}
    assert exposed == {family.name for family in families}
    assert exposed == names(text_string_to_metric_families(open_metrics))  # type: ignore[no-untyped-call]
    samples = {sample.name for family in plain_families(plain) for sample in family.samples}
    assert all(family_of(name) for name in samples if not name.endswith("_created"))
