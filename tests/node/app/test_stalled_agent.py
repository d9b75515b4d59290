"""An agent whose loop is held up tells of it, by its metric and by an event with the step."""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import grpc.aio

from kakeya.v1 import capability_pb2, capability_pb2_grpc
from kakeya_fleet.node.watch.loop_stall import StallSettings
from tests.node.conftest import AgentProcess, Scrape, SpawnAgent, next_message
from tests.support.patience import PATIENCE_SECONDS

HELD_SECONDS = 3 * StallSettings().least_seconds
# What the agent may have seen of it: the account of its thread is a little older than a turn.
SEEN_SECONDS = 0.8 * HELD_SECONDS
WAITED = re.compile(r'kakeya_event_loop_stall_seconds_sum\{cause="waiting"\} (\S+)')
TOLD = re.compile(
    r"The event loop stood still for (?P<seconds>\S+) s, (?P<longest>\S+) s of them in"
    r" (?P<step>.+): (?P<computing>\S+) s computing, \S+ s ready without a free core,"
    r" (?P<waiting>\S+) s waiting for a file, a lock or a thread that held the interpreter\."
    r"( \d+ more since .*)?"
)


@asynccontextmanager
async def at_work(address: str) -> AsyncIterator[None]:
    """The agent's loop is at work for as long as the context lasts."""

    async def ask() -> None:
        async with aiohttp.ClientSession() as http:
            while True:
                async with http.get(f"http://{address}/metrics") as answer:
                    await answer.read()

    work = [asyncio.create_task(ask()) for _ in range(4)]
    try:
        yield
    finally:
        for each in work:
            each.cancel()
            with suppress(asyncio.CancelledError):
                await each


async def waited(agent: AgentProcess, scrape: Scrape) -> float:
    """Seconds of stalls in which it waited."""
    found = WAITED.search(await scrape(agent.ready["http_address"]))
    assert found is not None, "the metric is there before the first stall"
    return float(found[1])


async def stalls(agent: AgentProcess) -> list[capability_pb2.NodeEvent]:
    """Its events of stalls."""
    async with grpc.aio.insecure_channel(agent.address) as channel:
        stub = capability_pb2_grpc.CapabilityServiceStub(channel)
        call = stub.WatchNode(capability_pb2.WatchNodeRequest())
        history = (await next_message(call)).history
        call.cancel()
    return [event for event in history.events if event.kind == "LOOP_STALLED"]


async def test_a_held_loop_is_a_metric_and_an_event(
    spawn_agent: SpawnAgent, scrape: Scrape
) -> None:
    agent = await spawn_agent()
    before = await waited(agent, scrape)
    found: list[tuple[re.Match[str], capability_pb2.NodeEvent]] = []
    async with asyncio.timeout(PATIENCE_SECONDS), at_work(agent.ready["http_address"]):
        # A moment that falls between two turns holds up nothing.
        while not found or await waited(agent, scrape) - before < SEEN_SECONDS:
            agent.signal(signal.SIGSTOP)
            # No wait for a state: this is what holds the agent up.
            await asyncio.sleep(HELD_SECONDS)
            agent.signal(signal.SIGCONT)
            for event in await stalls(agent):
                told = TOLD.fullmatch(event.message)
                assert told is not None, event.message
                if float(told["waiting"]) >= SEEN_SECONDS:
                    found.append((told, event))
    told, event = found[0]
    assert float(told["longest"]) <= float(told["seconds"])
    assert float(told["computing"]) < float(told["waiting"])
    assert event.severity == capability_pb2.EVENT_SEVERITY_WARNING
    assert event.mend.startswith("The node goes on.")


AGENT = """
import asyncio, gc, os, signal, sys
from kakeya_fleet.node.app.agent import run_agent
from kakeya_fleet.node.config.config import build

async def main():
    configured = build({"state": sys.argv[1], "mdns": False, "http_bind": "off",
                        "bind": "127.0.0.1:0",
                        "serve": ("proposer=ngram",), "drain_seconds": 0.1}, {})
    told = []
    agent = asyncio.ensure_future(run_agent(configured, on_event=lambda each: told.append(each)))
    while not any(each["event"] == "ready" for each in told) and not agent.done():
        await asyncio.sleep(0.01)
    while gc.get_freeze_count() < 50 * len(gc.get_objects()) and not agent.done():
        await asyncio.sleep(0.01)
    print(not agent.done())
    os.kill(os.getpid(), signal.SIGTERM)
    await agent

asyncio.run(main())
"""


async def test_what_lives_for_ever_is_looked_through_no_more_once_the_agent_is_ready(
    tmp_path: Path,
) -> None:
    """A look through all of it takes 0.3 s, and many small lists in one body have it done."""
    agent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", AGENT, str(tmp_path)), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        told, _ = await agent.communicate()
    assert told.decode().split() == ["True"]
