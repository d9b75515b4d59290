import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kakeya_fleet.node.rpc.health import Health
from tests.node.conftest import Serve

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


@pytest.fixture
def health() -> Health:
    return Health(("verifier", "kakeya.v1.RuntimeService"))


@pytest.fixture
async def stub(serve: Serve, health: Health) -> Any:
    channel = await serve(
        lambda server: health_pb2_grpc.add_HealthServicer_to_server(health, server)
    )
    # Any: the stub has Watch, its types have not.
    return health_pb2_grpc.HealthStub(channel)


def ask(name: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=name)


async def test_every_name_serves_until_the_node_drains(stub: Any, health: Health) -> None:
    for name in ("", "verifier", "kakeya.v1.RuntimeService"):
        assert (await stub.Check(ask(name))).status == SERVING
    health.drain()
    for name in ("", "verifier", "kakeya.v1.RuntimeService"):
        assert (await stub.Check(ask(name))).status == NOT_SERVING


async def test_a_role_that_is_not_served_is_not_found(stub: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(ask("proposer"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_every_watcher_hears_of_the_drain_after_another_left(
    stub: Any, health: Health
) -> None:
    leaving, staying = stub.Watch(ask("verifier")), stub.Watch(ask("verifier"))
    assert (await leaving.read()).status == SERVING
    assert (await staying.read()).status == SERVING
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving.read()
    health.drain()
    assert (await staying.read()).status == NOT_SERVING


async def test_watching_an_unknown_name_says_so_and_stays(stub: Any, health: Health) -> None:
    watch = stub.Watch(ask("archive"))
    assert (await watch.read()).status == UNKNOWN
    health.close()
    # The end may come with the status once more or without it.
    while (message := await watch.read()) is not grpc.aio.EOF:
        assert message.status == UNKNOWN


async def test_server_stops_while_watched(serve: Serve) -> None:
    health = Health(())
    channel = await serve(
        lambda server: health_pb2_grpc.add_HealthServicer_to_server(health, server)
    )
    stub: Any = health_pb2_grpc.HealthStub(channel)
    watch = stub.Watch(ask(""))
    await watch.read()
    health.drain()
    health.close()
    assert (await watch.read()).status == NOT_SERVING
    assert await watch.read() is grpc.aio.EOF
