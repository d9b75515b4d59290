"""A verifier that dies costs a replay; one that freezes costs a deadline."""

import signal
from collections.abc import Awaitable, Callable

import pytest

from kakeya import (
    AsyncClient,
    Completion,
    DeadlineExceeded,
    NodeUnreachable,
    StopReason,
    Timeouts,
)
from scripts.support.agent_process import LocalFleet

MAX_TOKENS = 600


async def test_a_frozen_verifier_is_a_named_deadline(
    fleet: LocalFleet, prompt: tuple[int, ...]
) -> None:
    """Or named as out of reach, where the connection asked for a sign of life meanwhile."""
    frozen = fleet.start("frozen", serve=("verifier=tiny",))
    # What a busy machine's verifier answers in, before it is frozen and after.
    timeouts = Timeouts(unary=5.0, first_tokens=3.0, stream_idle=3.0, leave=0.2)
    async with AsyncClient(frozen.address, timeouts=timeouts) as client:
        session = await client.create_session("tiny", speculation="off")
        await session.append(prompt)
        frozen.signal(signal.SIGSTOP)
        with pytest.raises((DeadlineExceeded, NodeUnreachable)):
            await session.generate(MAX_TOKENS).collect()
        with pytest.raises((DeadlineExceeded, NodeUnreachable)):
            await session.info()
        frozen.signal(signal.SIGCONT)
        # It thaws with the session as it was, or a little further: nothing is lost.
        assert (await session.info()).history_length >= len(prompt)


@pytest.mark.wide
async def test_a_leaving_verifier_ends_its_streams_by_name(
    fleet: LocalFleet,
    prompt: tuple[int, ...],
    generate: Callable[..., Awaitable[Completion]],
) -> None:
    # What a stream without an end gets to end in.
    drain = {"KAKEYA_DRAIN_SECONDS": "1"}
    leaving = fleet.start("leaving", serve=("verifier=tiny",), environment=drain)
    staying = fleet.start("staying", serve=("verifier=tiny",), peers=(leaving.address,))
    leaving.wait_for("peer_joined")
    async with AsyncClient(leaving.address) as client, AsyncClient(staying.address) as other:
        whole = await generate(other, prompt, MAX_TOKENS)
        session = await client.create_session(
            "tiny", speculation="off", sink_tokens=4, window_tokens=16
        )
        await session.append(prompt)
        generation = session.generate(100_000)
        # Its context is never full before it leaves.
        with leaving.slowed():
            async for _ in generation:
                if session.history_length == len(prompt) + 1:
                    leaving.signal(signal.SIGTERM)
        assert generation.done is not None
        assert generation.done.stop_reason is StopReason.DRAINING
        received = session.history[len(prompt) :][:MAX_TOKENS]
        assert received == whole.token_ids[: len(received)]
    left = staying.wait_for("peer_left")
    assert left["node_id"] == leaving.node_id
    assert leaving.wait() == 0
