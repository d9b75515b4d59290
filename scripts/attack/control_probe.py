"""How soon a node answers what keeps it in its fleet; asked by `scripts.attack.load`.

    python -m scripts.attack.control_probe HOST:PORT

A process of its own, so that a caller who is busy makes no answer late. Asks until its standard
input ends, then writes one line of JSON: milliseconds by call.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kakeya.v1 import capability_pb2, capability_pb2_grpc

PAUSE_SECONDS = 0.02


async def ask(address: str, ended: asyncio.Event) -> dict[str, list[float]]:
    """Milliseconds of each answer, by call."""
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    async with grpc.aio.insecure_channel(address) as channel:
        # The stub has Check, its types have not.
        health: Any = health_pb2_grpc.HealthStub(channel)
        capability: Any = capability_pb2_grpc.CapabilityServiceStub(channel)
        asked = (
            ("Check", health.Check, health_pb2.HealthCheckRequest()),
            ("GetNode", capability.GetNode, capability_pb2.GetNodeRequest()),
        )
        while not ended.is_set():
            for name, call, request in asked:
                began = time.perf_counter()
                await call(request, timeout=10)
                seconds[name].append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE_SECONDS)
    return {name: [1000.0 * each for each in found] for name, found in seconds.items()}


async def main() -> None:
    """Until standard input ends."""
    ended = asyncio.Event()
    asking = asyncio.create_task(ask(sys.argv[1], ended))
    await asyncio.to_thread(sys.stdin.read)
    ended.set()
    print(json.dumps(await asking))


if __name__ == "__main__":
    asyncio.run(main())
