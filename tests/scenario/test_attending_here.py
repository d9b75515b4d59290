"""A verifier that reads back what an archive keeps: killed, frozen or over any road, one stream."""

import asyncio
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya import AsyncClient, AsyncSession, AttendAt, Liveness, Transport
from scripts.support.agent_process import AgentProcess, LocalFleet

WINDOW_TOKENS = 64
MAX_TOKENS = 100
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def reading() -> Iterator[LocalFleet]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    before = segments()
    with LocalFleet(f"scenario-{uuid.uuid4().hex}") as agents:
        yield agents
    # Killed agents leave none behind either.
    assert segments() <= before


def segments() -> set[str]:
    return {path.name for path in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


async def known(client: AsyncClient, *archives: AgentProcess) -> None:
    """Waits until the verifier's node knows the archives, and the ways to them."""
    wanted = {archive.node_id for archive in archives}
    async with client.fleet.watch() as events:
        async for _ in events:
            ready = {
                node.node_id
                for node in await client.fleet.nodes()
                if node.archive and node.round_trip_seconds and node.liveness is Liveness.ALIVE
            }
            if wanted <= ready:
                return
    raise AssertionError("the watch ended")


async def attending_here(client: AsyncClient) -> AsyncSession:
    return await client.create_session(
        "tiny",
        kv_strategy="restored",
        sink_tokens=4,
        window_tokens=WINDOW_TOKENS,
        speculation="off",
        attend="verifier",
    )


async def carried_by(client: AsyncClient, transport: Transport) -> None:
    """Waits until the verifier's only link is carried so."""

    async def transports() -> list[Transport]:
        return [link.transport for link in (await client.fleet.node()).tensor_links]

    async with asyncio.timeout(30):
        while await transports() != [transport]:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.05)


@pytest.mark.timeout(300)
async def test_the_stream_outlives_every_archive_that_is_read(
    reading: LocalFleet, prompt: tuple[int, ...]
) -> None:
    history = tuple((token * 7 + index) % 900 + 20 for index, token in enumerate(prompt * 3))
    environment = {"KAKEYA_LINKS": "local"}
    verifier = reading.start("verifier", serve=("verifier=tiny",), environment=environment)

    def start(name: str) -> AgentProcess:
        return reading.start(
            name,
            serve=("archive=64MiB",),
            peers=(verifier.address,),
            environment=environment,
        )

    archives = {agent.node_id: agent for agent in [start("a"), start("b"), start("c")]}
    async with AsyncClient(verifier.address) as client:
        await known(client, *archives.values())
        async with await client.create_session(
            "tiny", kv_strategy="full", speculation="off"
        ) as full:
            await full.append(history)
            expected = (await full.generate(MAX_TOKENS).collect()).token_ids
        for strike in (signal.SIGKILL, signal.SIGSTOP):
            session = await attending_here(client)
            await session.append(history)
            await carried_by(client, Transport.LOCAL)
            used = archives.pop(session.plan.archive.node_id)
            token_ids: list[int] = []
            struck = False
            generation = session.generate(MAX_TOKENS)
            async for tokens in generation:
                token_ids.extend(tokens.token_ids)
                if not struck and len(token_ids) >= MAX_TOKENS // 3:
                    struck = True
                    used.signal(strike)
            assert struck
            assert tuple(token_ids) == expected
            info = await session.info()
            assert info.restorer is not None
            assert (info.restorer.attend, info.restorer.rebuild_count) == (AttendAt.VERIFIER, 1)
            assert info.restorer.node_id in archives
            await session.close()
            used.kill()
