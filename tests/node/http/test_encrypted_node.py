"""HTTP in front of a node that members of its fleet alone can call."""

from __future__ import annotations

from pathlib import Path

import aiohttp

from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.http.server import HttpServer
from kakeya_fleet.node.http.settings import HttpSettings, ServingNode
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.trust.tls import client_tls, server_credentials
from tests.node.http.conftest import NoRoles
from tests.support import scripted_node as scripted
from tests.support.trusted_nodes import fleet_of, renew


async def test_it_calls_its_node_as_that_node_also_with_a_renewed_certificate(
    tmp_path: Path,
) -> None:
    keeper, other = fleet_of(tmp_path / "home", 2)
    node = scripted.ScriptedNode("mini-1", other.node_id)
    await node.start(server_credentials(other))
    scripted.join(node)
    metrics = NodeMetrics()
    server = HttpServer(HttpSettings("127.0.0.1", 0), metrics, Allowances(Limits(), metrics))
    await server.start()
    renew(other, keeper)
    server.open(ServingNode("here", node.address, NoRoles(), tuple, client_tls(other)))
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{server.address}/v1/models") as response,
        ):
            told = await response.json()
    finally:
        await server.close()
        await node.stop()
    assert [model["id"] for model in told["data"]] == ["tiny"]
