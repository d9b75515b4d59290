"""Asks a node for thousands of sessions: `python -m scripts.faults.session_storm HOST:PORT`.

A process of its own, so that whoever measures what others get meanwhile is not held up by it.
Writes one line of JSON: how the calls ended, and how many refusals said when to come back.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from contextlib import AsyncExitStack

import grpc.aio

from kakeya.v1 import placement_pb2, runtime_pb2, runtime_pb2_grpc
from scripts.attack.calls import reason_of

ASKED_SESSIONS = 10_000
ASKING_AT_ONCE = 64
REQUEST = runtime_pb2.CreateSessionRequest(
    model_id="tiny",
    sink_tokens=4,
    window_tokens=64,
    kv_strategy=placement_pb2.KV_STRATEGY_SINK_WINDOW,
)


async def storm(address: str) -> dict[str, object]:
    """Asks, by so many callers at once, each with a connection of its own."""
    told: Counter[str] = Counter()
    hints = 0
    left = iter(range(ASKED_SESSIONS))

    async def asks(channel: grpc.aio.Channel) -> None:
        nonlocal hints
        create = runtime_pb2_grpc.RuntimeServiceStub(channel).CreateSession
        for _ in left:
            try:
                await create(REQUEST, timeout=60)
                told["OK"] += 1
            except grpc.aio.AioRpcError as error:
                told[f"{error.code().name} {reason_of(error)}".strip()] += 1
                hints += _has_retry_info(error)

    async with AsyncExitStack() as stack:
        options = (("grpc.use_local_subchannel_pool", 1),)
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options))
            for _ in range(ASKING_AT_ONCE)
        ]
        await asyncio.gather(*(asks(each) for each in channels))
    return {"answered": dict(told), "with_retry_info": hints}


def _has_retry_info(error: grpc.aio.AioRpcError) -> bool:
    metadata = error.trailing_metadata() or ()
    return any(
        key == "grpc-status-details-bin" and b"RetryInfo" in bytes(value)  # type: ignore[arg-type]
        for key, value in metadata
    )


if __name__ == "__main__":
    print(json.dumps(asyncio.run(storm(sys.argv[1]))))
