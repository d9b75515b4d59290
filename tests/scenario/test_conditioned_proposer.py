"""A DFlash proposer in a process of its own: killed, frozen and started anew in mid-session."""

import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kakeya import AsyncClient, Completion, ModelKind, Speculation
from kakeya_fleet.engine.models.model_folder import resolve
from scripts.support.agent_process import AgentProcess, LocalFleet


@pytest.fixture(scope="module")
def drafter(random_drafter: Callable[..., Path]) -> Path:
    return random_drafter(resolve("tiny").path, "random-dflash", num_hidden_layers=1)


@pytest.fixture
async def client(verifier: AgentProcess):
    async with AsyncClient(verifier.address) as client:
        yield client


async def started(
    fleet: LocalFleet, verifier: AgentProcess, client: AsyncClient, drafter: Path
) -> AgentProcess:
    """The drafter's node, once the verifier's node knows the way to it."""
    agent = fleet.start("dflash", serve=(f"proposer={drafter}",), peers=(verifier.address,))
    async with client.fleet.watch() as events:
        async for _ in events:
            for node in await client.fleet.nodes():
                if node.node_id == agent.node_id and node.round_trip_seconds:
                    (offer,) = node.models
                    assert offer.kind is ModelKind.DFLASH
                    assert (offer.feature_width, offer.block_size) == (256, 15)
                    return agent
    raise AssertionError("the watch ended")


@pytest.mark.timeout(300)
async def test_drafting_goes_on_where_the_history_stands(
    shared_fleet: LocalFleet,
    verifier: AgentProcess,
    client: AsyncClient,
    drafter: Path,
    prompt: tuple[int, ...],
    generate: Callable[..., Awaitable[Completion]],
) -> None:
    agent = await started(shared_fleet, verifier, client, drafter)
    speculation = Speculation("random-dflash", node_id=agent.node_id)
    session = await client.create_session(
        "tiny", speculation=speculation, sink_tokens=4, window_tokens=16
    )
    async with session:
        await session.append(prompt)
        generation = session.generate(80)
        alive = True
        async for tokens in generation:
            if alive and tokens.first_index >= len(prompt) + 40:
                alive = False
                agent.signal(signal.SIGKILL)
        assert generation.done is not None
        assert generation.done.speculation.drafted_count > 0
        assert generation.done.speculation.drop_reason is not None
        again = await started(shared_fleet, verifier, client, drafter)
        assert again.node_id == agent.node_id
        drafts_soundly = False
        # The first attempts may still meet the connection that broke.
        while not drafts_soundly and session.history_length < 1500:
            after = (await session.generate(40).collect()).done.speculation
            drafts_soundly = after.drafted_count > 0 and not after.faults
        assert drafts_soundly
        generated = session.history[len(prompt) :]
    alone = await generate(client, prompt, len(generated))
    assert generated == alone.token_ids
    again.stop()
