"""A real loop whose steps stall it: found, named, and told apart by what the thread did."""

import asyncio
import os
import re
import threading
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import aiohttp
import grpc.aio
import pytest
from aiohttp import web
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kakeya_fleet.node.http.middleware import measuring
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor
from kakeya_fleet.node.rpc.listening import listen, make_server
from kakeya_fleet.node.watch.loop_stall import LoopStall, StallCause, StallSettings
from kakeya_fleet.node.watch.watched_loop import WatchedLoop, watched_loop
from tests.support.patience import PATIENCE_SECONDS

LEAST = StallSettings().least_seconds
STALL = 1.5 * LEAST

Main = Callable[["Stalls"], Coroutine[Any, Any, None]]


class Stalls:
    """Those that a loop told, and waiting for the one of a step."""

    def __init__(self) -> None:
        self.told: list[LoopStall] = []
        self.came = asyncio.Event()

    def take(self, noted: LoopStall | OSError) -> None:
        assert isinstance(noted, LoopStall)
        self.told.append(noted)
        self.came.set()

    async def of(self, step: str) -> LoopStall:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                for stall in self.told:
                    if stall.step == step:
                        return stall
                self.came.clear()
                await self.came.wait()


def watched(main: Main) -> None:
    """Runs `main` in a watched loop, with the stalls that it tells."""

    async def run() -> None:
        loop, stalls = watched_loop(), Stalls()
        assert loop is not None
        loop.tell(stalls.take)
        await main(stalls)

    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        runner.run(run())


def compute() -> None:
    until = time.thread_time() + STALL
    while time.thread_time() < until:
        pass


async def computing() -> None:
    compute()


async def sleeping() -> None:
    await asyncio.sleep(0)
    time.sleep(STALL)  # noqa: ASYNC251 what a step must not do


def test_a_step_that_computes_and_one_that_waits() -> None:
    async def main(stalls: Stalls) -> None:
        await asyncio.create_task(computing(), name="digest")
        stall = await stalls.of("digest")
        assert stall.cause(LEAST) is StallCause.COMPUTING
        assert stall.on_core == pytest.approx(STALL, rel=0.3)
        await asyncio.create_task(sleeping(), name="disk")
        stall = await stalls.of("disk")
        assert stall.cause(LEAST) is StallCause.WAITING
        assert stall.step_seconds >= STALL

    watched(main)


def test_tasks_without_a_name_callbacks_timers_and_readers() -> None:
    async def main(stalls: Stalls) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.create_task(sleeping())
        await stalls.of("sleeping")
        loop.call_soon(compute)
        await stalls.of("compute")
        stalls.told.clear()
        loop.call_later(0.001, compute)
        await stalls.of("compute")
        stalls.told.clear()
        reading, writing = os.pipe()

        def read() -> None:
            os.read(reading, 1)
            compute()

        loop.add_reader(reading, read)
        os.write(writing, b"x")
        await stalls.of(read.__qualname__)
        loop.remove_reader(reading)
        os.close(reading)
        os.close(writing)

    watched(main)


def test_a_stall_is_told_at_once_and_rest_is_none() -> None:
    async def main(stalls: Stalls) -> None:
        asyncio.get_running_loop().call_later(0.001, compute)
        # Nothing else wakes this loop.
        await stalls.of("compute")
        stalls.told.clear()
        await asyncio.sleep(3 * LEAST)
        assert not [each for each in stalls.told if each.cause(LEAST) is not StallCause.MACHINE]

    watched(main)


def test_a_thread_that_keeps_the_interpreter_makes_the_loop_wait() -> None:
    """A regular expression runs to its end before any other thread of Python."""
    hostile = re.compile(r"(?:a|aa)+$")

    async def main(stalls: Stalls) -> None:
        length, took = 24, 0.0
        while took < STALL:
            length += 1
            began = time.thread_time()
            hostile.match("a" * length + "b")
            took = time.thread_time() - began
        stalls.told.clear()
        while not any(each.cause(LEAST) is StallCause.WAITING for each in stalls.told):
            other = threading.Thread(target=hostile.match, args=("a" * length + "b",))
            other.start()
            while other.is_alive():  # noqa: ASYNC110 the loop is to be at work
                await asyncio.sleep(0)
            await asyncio.sleep(0)

    watched(main)


def test_calls_and_requests_stall_by_their_names(metrics: NodeMetrics) -> None:
    async def check(request: health_pb2.HealthCheckRequest, context: Any) -> object:
        await sleeping()
        return health_pb2.HealthCheckResponse()

    async def page(request: web.Request) -> web.Response:
        await sleeping()
        return web.Response()

    async def main(stalls: Stalls) -> None:
        server = make_server(ErrorInterceptor(metrics))
        servicer: Any = SimpleNamespace(Check=check, Watch=None)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        port = listen(server, "127.0.0.1", 0, 0)
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            # The stub has Check, its types have not.
            stub: Any = health_pb2_grpc.HealthStub(channel)
            await stub.Check(health_pb2.HealthCheckRequest())
        await stalls.of("/grpc.health.v1.Health/Check")
        await server.stop(None)
        app = web.Application(middlewares=[measuring(metrics, time.monotonic)])
        app.router.add_get("/v1/{name}", page)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        (address, *_) = runner.addresses
        async with aiohttp.ClientSession() as http:
            await http.get(f"http://{address[0]}:{address[1]}/v1/secret")
        await stalls.of("HTTP /v1/{name}")
        await runner.cleanup()

    watched(main)


def test_what_is_noted_before_anybody_listens_is_told_later() -> None:
    async def main() -> None:
        loop, stalls = watched_loop(), Stalls()
        assert loop is not None
        for _ in range(2):
            await asyncio.create_task(computing(), name="loading")
        loop.tell(stalls.take)
        await stalls.of("loading")
        assert len([each for each in stalls.told if each.step == "loading"]) == 2

    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        runner.run(main())


async def test_another_loop_is_not_watched() -> None:
    assert watched_loop() is None
