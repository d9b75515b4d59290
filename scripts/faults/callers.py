"""Rows 19 to 21 and 29: callers who take too much of what is scarce."""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
from contextlib import AsyncExitStack, suppress
from typing import Any

import grpc
import grpc.aio

from kakeya import AsyncClient, KakeyaError
from kakeya.v1 import (
    capability_pb2,
)
from scripts.attack.attacks import CONNECTIONS, FEW_FILES, held_open
from scripts.bench.machine import percentile
from scripts.faults.lost_processes import ms
from scripts.faults.row import Outcome, Row
from scripts.faults.scene import Scene, total, until
from scripts.faults.session_storm import ASKED_SESSIONS
from scripts.faults.streams import alone, opened, streamed
from scripts.support.child_process import ChildProcess

SOCKETS = 1000
HELLO = bytes.fromhex("16030102000100")
"""The beginning of a TLS handshake; half of what hold it open say nothing at all."""
PHASES = 5
PHASE_SECONDS = 6.0
STREAMED_TOKENS = 1500
STORM_CALLS = 1000


async def slow_callers(scene: Scene) -> Outcome:
    """Row 19."""
    agent = scene.start("node")
    address = await asyncio.to_thread(lambda: agent.address)
    found: dict[str, list[float]] = {"calm": [], "held": []}
    taken = 0
    # In turn, so that what else the machine does falls on both.
    for _ in range(PHASES):
        for phase in ("calm", "held"):
            async with AsyncExitStack() as stack:
                if phase == "held":
                    taken = await _half_open(address, stack)
                with ChildProcess("scripts.attack.control_probe", [address]) as probe:
                    await asyncio.sleep(PHASE_SECONDS)
                    probe.end_input()
                    answered = json.loads(await asyncio.to_thread(probe.hear))
                found[phase] += answered["GetNode"]
    calm, held = (percentile(found[phase], 0.99) for phase in ("calm", "held"))
    middle = {phase: statistics.median(each) for phase, each in found.items()}
    return Outcome(
        held <= 1.1 * calm,
        f"p99 {held:.1f} ms beside {taken} idle and half-open sockets, {calm:.1f} ms without "
        f"(medians {middle['held']:.1f} and {middle['calm']:.1f})",
        {
            "sockets": taken,
            "p99_ms": {"calm": calm, "held": held},
            "p50_ms": middle,
            "answers": {phase: len(each) for phase, each in found.items()},
        },
    )


async def _half_open(address: str, stack: AsyncExitStack) -> int:
    host, _, port = address.rpartition(":")
    for number in range(SOCKETS):
        _, writer = await asyncio.open_connection(host, int(port))
        stack.callback(writer.transport.abort)
        if number % 2:
            writer.write(HELLO)
    return SOCKETS


async def many_sessions(scene: Scene) -> Outcome:
    """Row 20."""
    agent = scene.start("node", "verifier=tiny", environment={"KAKEYA_KV_BUDGET_BYTES": "67108864"})
    client = await scene.client(agent)
    async with await opened(client) as before, await opened(client) as meanwhile:
        calm = (await streamed(before, STREAMED_TOKENS)).gaps
        with ChildProcess("scripts.faults.session_storm", [agent.address]) as storm:
            stormy = (await streamed(meanwhile, STREAMED_TOKENS)).gaps
            told = json.loads(await asyncio.to_thread(storm.hear))
    ends, hints = told["answered"], int(told["with_retry_info"])
    refused = sum(count for end, count in ends.items() if end != "OK")
    late, usual = percentile(stormy, 0.99), percentile(calm, 0.99)
    named = all(end == "OK" or end.startswith("RESOURCE_EXHAUSTED") for end in ends)
    return Outcome(
        named and refused > 0 and hints == refused and late <= 2 * usual,
        f"{ends.get('OK', 0):,} of {ASKED_SESSIONS:,} admitted, {refused:,} refused, {hints:,} of "
        f"them with RetryInfo; between two tokens of an admitted stream {ms(late)} (p99) "
        f"meanwhile, {ms(usual)} before",
        {**told, "p99_seconds": {"before": usual, "meanwhile": late}},
    )


class SickNode:
    """A node that is unavailable to every call, and counts them."""

    def __init__(self) -> None:
        self.attempts = 0

    def handlers(self) -> grpc.GenericRpcHandler:
        """What a server calls."""
        get_node = grpc.unary_unary_rpc_method_handler(
            self._refuse,
            request_deserializer=capability_pb2.GetNodeRequest.FromString,
            response_serializer=capability_pb2.GetNodeResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(
            "kakeya.v1.CapabilityService", {"GetNode": get_node}
        )

    async def _refuse(
        self, _request: object, context: grpc.aio.ServicerContext[Any, Any]
    ) -> capability_pb2.GetNodeResponse:
        self.attempts += 1
        await context.abort(grpc.StatusCode.UNAVAILABLE, "sick")
        raise AssertionError


async def retry_storm(scene: Scene) -> Outcome:
    """Row 21."""
    sick = SickNode()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((sick.handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    scene.stack.push_async_callback(server.stop, 0)
    client = await scene.stack.enter_async_context(AsyncClient(f"127.0.0.1:{port}"))
    failed = 0
    for _ in range(STORM_CALLS):
        try:
            await client.fleet.node()
        except KakeyaError:
            failed += 1
    ratio = sick.attempts / STORM_CALLS
    return Outcome(
        ratio <= 1.1 and failed == STORM_CALLS,
        f"{sick.attempts:,} attempts for {STORM_CALLS:,} calls of one client: {ratio:.3f} x",
        {"attempts": sick.attempts, "calls": STORM_CALLS, "ratio": ratio},
    )


async def few_files(scene: Scene) -> Outcome:
    """Row 29."""
    agent = scene.start("node", "verifier=tiny")
    # Long before it looks how many it may have: it has to load its libraries first.
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (FEW_FILES, FEW_FILES))
    client = await scene.client(agent)
    wanted = (await alone(client, 40)).token_ids
    ended = await total(agent, "kakeya_connections_ended_total")
    async with AsyncExitStack() as stack:
        http = str(agent.ready["http_address"])
        taken = await held_open([agent.address, http], CONNECTIONS, stack)
        async with await opened(client) as session:
            meanwhile = (await streamed(session, 40)).token_ids == wanted
    ended = await total(agent, "kakeya_connections_ended_total") - ended

    async def serves() -> bool:
        with suppress(KakeyaError):
            async with AsyncClient(agent.address) as newcomer:
                return (await alone(newcomer, 40)).token_ids == wanted
        return False

    back = await until(serves)
    return Outcome(
        back < 60.0 and agent.running,
        f"{taken:,} connections at {FEW_FILES:,} files, {ended:.0f} of them ended by the node; "
        f"it {'served' if meanwhile else 'did not serve'} meanwhile; a newcomer was served "
        f"{back:.1f} s after they had gone",
        {"connections": taken, "ended": ended, "served_meanwhile": meanwhile, "back_after": back},
    )


ROWS = (
    Row(
        19,
        "slowloris, half-open TLS",
        "1,000 idle sockets: p99 of others +10 % at most",
        slow_callers,
        240.0,
    ),
    Row(
        20,
        "10,000 sessions asked for",
        "RESOURCE_EXHAUSTED with RetryInfo; admitted p99 <= 2x",
        many_sessions,
        300.0,
    ),
    Row(21, "retry storm", "attempts <= 1.1x calls", retry_storm),
    Row(
        29,
        "file descriptors exhausted",
        "sheds accepts, recovers without a restart",
        few_files,
    ),
)
