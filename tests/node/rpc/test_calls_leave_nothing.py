"""What a call took is free once it has ended, without the collector of cycles."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import grpc.aio
import pytest

from kakeya.v1 import runtime_pb2, runtime_pb2_grpc
from kakeya_fleet.engine.errors import SessionNotFound
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.call_admission import CallAdmission
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor

CALLS = 40
HELD_BY_A_CALL = {
    *("_ServicerContext", "RPCState", "AbortError", "traceback", "frame", "Task"),
    *("GetSessionInfoRequest", "GenerateRequest", "WatchSessionsRequest", "CloseSessionRequest"),
    "ListSessionsRequest",
}


class Servicer(runtime_pb2_grpc.RuntimeServiceServicer):
    """A call of each kind that fails, one that ends by gRPC's own means, and one that does not."""

    async def GetSessionInfo(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        raise SessionNotFound("none", session_id="x")

    async def Generate(self, request, context):  # type: ignore[no-untyped-def, override]  # noqa: N802
        await context.write(runtime_pb2.GenerateResponse())
        raise SessionNotFound("none", session_id="x")

    async def WatchSessions(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        yield runtime_pb2.WatchSessionsResponse()
        raise SessionNotFound("none", session_id="x")

    async def ListSessions(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        await context.abort(grpc.StatusCode.NOT_FOUND, "none")

    async def CloseSession(self, request, context):  # type: ignore[no-untyped-def]  # noqa: N802
        return runtime_pb2.CloseSessionResponse()


@pytest.fixture
async def stub(metrics: NodeMetrics) -> AsyncIterator[runtime_pb2_grpc.RuntimeServiceAsyncStub]:
    admission = CallAdmission(Allowances(Limits(), metrics))
    server = grpc.aio.server(interceptors=[ErrorInterceptor(metrics), admission])
    runtime_pb2_grpc.add_RuntimeServiceServicer_to_server(
        Servicer(),  # type: ignore[abstract]  # the others are not called
        server,
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield runtime_pb2_grpc.RuntimeServiceStub(channel)
    await server.stop(None)


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    # What is there already is not counted each time: it is most of what there is.
    gc.freeze()
    gc.disable()
    yield
    gc.enable()


def held() -> Counter[str]:
    kinds = Counter(type(each).__qualname__ for each in gc.get_objects())
    return Counter({kind: kinds[kind] for kind in HELD_BY_A_CALL})


async def call(stub: runtime_pb2_grpc.RuntimeServiceAsyncStub, kind: str) -> None:
    with suppress(grpc.aio.AioRpcError):
        match kind:
            case "unary":
                await stub.GetSessionInfo(runtime_pb2.GetSessionInfoRequest(session_id="x"))
            case "written stream":
                async for _ in stub.Generate(runtime_pb2.GenerateRequest(session_id="x")):
                    pass
            case "yielded stream":
                async for _ in stub.WatchSessions(runtime_pb2.WatchSessionsRequest()):
                    pass
            case "ended by its servicer":
                await stub.ListSessions(runtime_pb2.ListSessionsRequest())
            case _:
                await stub.CloseSession(runtime_pb2.CloseSessionRequest(session_id="x"))


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    "kind", ["unary", "written stream", "yielded stream", "ended by its servicer", "good"]
)
async def test_calls_that_ended_are_freed_without_the_collector(
    stub: runtime_pb2_grpc.RuntimeServiceAsyncStub, kind: str
) -> None:
    await call(stub, kind)
    before = held()
    for _ in range(CALLS):
        await call(stub, kind)
    async with asyncio.timeout(30):
        # The last ones end in turns of the loop that follow.
        while most := (held() - before).most_common(1):
            if most[0][1] < CALLS // 4:
                break
            await asyncio.sleep(0.05)
