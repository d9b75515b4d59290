"""A verifier that is stopped to be started anew: its clients' streams go on, without an error."""

from __future__ import annotations

import asyncio
import signal

from kakeya import AsyncClient, AsyncSession, StopReason, Tokens
from kakeya.options import SessionOptions
from scripts.support.agent_process import AgentProcess, LocalFleet

TOKENS = 300
"""No answer ends before its node has heard that it is to go: slowed until then, it says them in
ten seconds."""
STANDS_SECONDS = 0.1
KV: SessionOptions = {"sink_tokens": 4, "window_tokens": 16, "speculation": "off"}
RESUMED: SessionOptions = {**KV, "resume": True}
# What running generations get before the node goes: they go at once, to go on elsewhere.
DRAIN = {"KAKEYA_DRAIN_SECONDS": "5"}


async def undisturbed(client: AsyncClient, prompt: tuple[int, ...]) -> tuple[int, ...]:
    async with await client.create_session("tiny", **KV) as session:
        await session.append(prompt)
        return (await session.generate(TOKENS).collect()).token_ids


async def streamed(session: AsyncSession, begun: asyncio.Event) -> tuple[int, ...]:
    """Generates to the end; sets `begun` as soon as something is there."""
    received: list[int] = []
    generation = session.generate(TOKENS)
    async for tokens in generation:
        assert isinstance(tokens, Tokens)
        received += tokens.token_ids
        begun.set()
    assert generation.done is not None
    assert generation.done.stop_reason is StopReason.MAX_TOKENS
    return tuple(received)


async def opened(client: AsyncClient, prompt: tuple[int, ...], count: int) -> list[AsyncSession]:
    sessions = [await client.create_session("tiny", **RESUMED) for _ in range(count)]
    for session in sessions:
        await session.append(prompt)
    return sessions


async def test_streams_of_a_verifier_that_drains_go_on_at_another(
    fleet: LocalFleet, prompt: tuple[int, ...]
) -> None:
    leaving = fleet.start("leaving", serve=("verifier=tiny",), environment=DRAIN)
    staying = fleet.start("staying", serve=("verifier=tiny",), peers=(leaving.address,))
    leaving.wait_for("peer_joined", seconds=60.0)
    staying.wait_for("peer_joined", seconds=60.0)
    async with AsyncClient(leaving.address) as client, AsyncClient(staying.address) as calm:
        expected = await undisturbed(calm, prompt)
        sessions = await opened(client, prompt, 3)
        begun = [asyncio.Event() for _ in sessions]
        with leaving.slowed(STANDS_SECONDS):
            streams = [
                asyncio.create_task(streamed(*pair)) for pair in zip(sessions, begun, strict=True)
            ]
            await asyncio.gather(*(each.wait() for each in begun))
            leaving.signal(signal.SIGTERM)
        assert await asyncio.gather(*streams) == [expected] * len(sessions)
        for session in sessions:
            assert [each.reason for each in session.resumptions] == ["DRAINING"]
            assert session.address == staying.address
            await session.close()
    assert await asyncio.to_thread(leaving.wait) == 0


async def test_where_it_is_the_only_one_streams_wait_for_its_return(
    fleet: LocalFleet, prompt: tuple[int, ...]
) -> None:
    """As `fleet upgrade` does it: stopped with drain, started anew at the same address."""
    alone = fleet.start("alone", serve=("verifier=tiny",), environment=DRAIN)
    async with AsyncClient(alone.address) as client:
        expected = await undisturbed(client, prompt)
        running, idle = await opened(client, prompt, 2)
        begun = asyncio.Event()
        with alone.slowed(STANDS_SECONDS):
            stream = asyncio.create_task(streamed(running, begun))
            await begun.wait()
            alone.signal(signal.SIGTERM)
        assert await asyncio.to_thread(alone.wait) == 0
        assert not stream.done()
        # One that asks only now, while nobody is there.
        late = asyncio.create_task(streamed(idle, asyncio.Event()))
        await asyncio.to_thread(started_anew, fleet, alone)
        assert list(await asyncio.gather(stream, late)) == [expected, expected]
        for session in (running, idle):
            (resumption,) = session.resumptions
            assert resumption.from_address == resumption.to_address == alone.address
            await session.close()


def started_anew(fleet: LocalFleet, before: AgentProcess) -> None:
    again = fleet.start("alone", serve=("verifier=tiny",), bind=before.address)
    assert again.address == before.address
