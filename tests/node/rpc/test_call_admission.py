"""Calls that say nothing take no place from others, and none from what keeps a node alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kakeya.v1 import archive_pb2, runtime_pb2, runtime_pb2_grpc, tensor_pb2
from kakeya_fleet.node.admission.limits import CallLimits
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.call_admission import CLOSING_METHODS, CallAdmission
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor
from kakeya_fleet.node.rpc.health import Health
from tests.node.conftest import Serve
from tests.support import calls
from tests.support.allowances import allowances_of

CHECK = "/grpc.health.v1.Health/Check"
ASKED = health_pb2.HealthCheckRequest()
SERVING = health_pb2.HealthCheckResponse.SERVING


class Server:
    """A server of health alone, whose Watch is a call like any other."""

    def __init__(self, serve: Serve, limits: CallLimits) -> None:
        self._serve = serve
        self.metrics = NodeMetrics()
        self.admission = CallAdmission(allowances_of(self.metrics, calls=limits))
        self.health = Health(())
        self.stub: Any = None

    async def start(self) -> Server:
        def register(server: grpc.aio.Server) -> None:
            health_pb2_grpc.add_HealthServicer_to_server(self.health, server)

        self.channel = await self._serve(register, ErrorInterceptor(self.metrics), self.admission)
        self.stub = health_pb2_grpc.HealthStub(self.channel)
        return self

    def told(self, name: str, limit: str, **labels: str) -> float:
        values = {"limit": f"calls.{limit}", **labels}
        return self.metrics.registry.get_sample_value(f"kakeya_admission_{name}", values) or 0.0

    async def held(self, limit: str, count: int) -> None:
        """Waits until so many places are held."""
        await calls.until(lambda: self.told("used", limit) == count)


@asynccontextmanager
async def silent_calls(channel: grpc.aio.Channel, count: int) -> AsyncIterator[list[Any]]:
    """Calls of Check whose one request never comes."""
    never = asyncio.Event()

    async def nothing() -> AsyncIterator[bytes]:
        await never.wait()
        yield b""

    check: Any = channel.stream_unary(CHECK)
    opened = [check(nothing()) for _ in range(count)]
    try:
        yield opened
    finally:
        for call in opened:
            call.cancel()
        await asyncio.gather(*opened, return_exceptions=True)


async def test_idle_streams_leave_the_control_plane_its_places(serve: Serve) -> None:
    server = await Server(serve, CallLimits(at_once=10, control=5)).start()
    watches = [server.stub.Watch(ASKED) for _ in range(8)]
    for watch in watches:
        assert (await watch.read()).status == SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.stub.Watch(ASKED).read()
    refused = calls.refused(caught.value)
    assert (refused.code, refused.reason) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "TOO_MANY_CALLS",
    )
    assert refused.metadata["cause"] == "share"
    assert refused.retry_seconds == 1.0
    assert server.told("refused_total", "at_once", reason="share") == 1
    # As many as ask, one after the other.
    for _ in range(20):
        assert (await server.stub.Check(ASKED)).status == SERVING
    watches.pop().cancel()
    await server.held("at_once", 7)
    again = server.stub.Watch(ASKED)
    assert (await again.read()).status == SERVING
    for watch in [*watches, again]:
        watch.cancel()
    await server.held("at_once", 0)


async def test_requests_have_a_size_together_and_leave_the_control_plane_its_own(
    serve: Serve,
) -> None:
    server = await Server(serve, CallLimits(requests_bytes=50_000)).start()
    long = health_pb2.HealthCheckRequest(service="x" * 9_900)
    watches = [server.stub.Watch(long) for _ in range(4)]
    for watch in watches:
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    assert 39_600 < server.told("used", "requests_bytes") < 40_000
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.stub.Watch(long).read()
    refused = calls.refused(caught.value)
    assert refused.reason == "TOO_MANY_CALLS"
    assert "calls.requests_bytes" in refused.text
    assert refused.retry_seconds == 1.0
    assert (await server.stub.Check(ASKED)).status == SERVING
    for watch in watches:
        watch.cancel()
    await server.held("requests_bytes", 0)
    await server.held("at_once", 0)
    again = server.stub.Watch(long)
    await again.read()
    again.cancel()


async def test_a_call_whose_request_never_comes_gives_its_place_to_one_that_asks(
    serve: Serve,
) -> None:
    server = await Server(serve, CallLimits(control=5, control_request_seconds=60.0)).start()
    async with silent_calls(server.channel, 4) as silent:
        await server.held("control", 4)
        for _ in range(3):
            assert (await server.stub.Check(ASKED)).status == SERVING
        assert server.told("reclaimed_total", "control") >= 1
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(each) for each in silent], return_when=asyncio.FIRST_COMPLETED
        )
        # It may have been on its way: nothing is wrong with the call.
        error = done.pop().exception()
        assert isinstance(error, grpc.aio.AioRpcError)
        refused = calls.refused(error)
        assert (refused.reason, refused.retry_seconds) == ("TOO_MANY_CALLS", 1.0)
    await server.held("control", 0)


class Closing(runtime_pb2_grpc.RuntimeServiceServicer):
    """Ends every session that it is asked to."""

    async def CloseSession(  # noqa: N802
        self, _request: runtime_pb2.CloseSessionRequest, _context: object
    ) -> runtime_pb2.CloseSessionResponse:
        return runtime_pb2.CloseSessionResponse()


async def test_what_gives_something_back_has_a_place_where_all_are_taken(serve: Serve) -> None:
    admission = CallAdmission(allowances_of(calls=CallLimits(at_once=0)))
    metrics = NodeMetrics()

    def register(server: grpc.aio.Server) -> None:
        servicer: Any = Closing()  # type: ignore[abstract]  # no other call is made
        runtime_pb2_grpc.add_RuntimeServiceServicer_to_server(servicer, server)

    channel = await serve(register, ErrorInterceptor(metrics), admission)
    stub = runtime_pb2_grpc.RuntimeServiceStub(channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.GetSessionInfo(runtime_pb2.GetSessionInfoRequest(session_id="s"))
    assert calls.refused(caught.value).reason == "TOO_MANY_CALLS"
    await stub.CloseSession(runtime_pb2.CloseSessionRequest(session_id="s"))


def test_closing_methods_are_methods() -> None:
    files = (runtime_pb2, tensor_pb2, archive_pb2)
    methods = {
        f"/{service.full_name}/{method.name}"
        for each in files
        for service in each.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert set(CLOSING_METHODS) == {name for name in methods if "/Close" in name}


async def test_a_request_that_does_not_come_in_time_ends_its_call(serve: Serve) -> None:
    server = await Server(serve, CallLimits(control_request_seconds=0.05)).start()
    async with silent_calls(server.channel, 1) as [call]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert calls.refused(caught.value).reason == "BAD_REQUEST"
    await server.held("control", 0)


async def test_bytes_that_are_no_request_are_refused_by_name(serve: Serve) -> None:
    server = await Server(serve, CallLimits()).start()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        check: Any = server.channel.unary_unary(CHECK)
        await check(b"\xff\xff")
    assert calls.refused(caught.value).reason == "BAD_REQUEST"
    await server.held("control", 0)


async def test_the_largest_honest_caller_has_a_thousand_streams(serve: Serve) -> None:
    server = await Server(serve, CallLimits()).start()
    watches = [server.stub.Watch(ASKED) for _ in range(1000)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(watch.read() for watch in watches))
    assert server.told("used", "at_once") == 1000
    for watch in watches:
        watch.cancel()
    await server.held("at_once", 0)
