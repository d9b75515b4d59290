"""A proposer that dies, freezes or comes back costs speed, never a token."""

import signal
from collections.abc import Awaitable, Callable, Sequence

import pytest

from kakeya import AsyncClient, Completion, DropReason, Speculation
from node.agent_process import AgentProcess, LocalFleet

MAX_TOKENS = 400
NGRAM = Speculation("ngram")


async def proposer_for(
    fleet: LocalFleet, verifier: AgentProcess, client: AsyncClient, name: str
) -> AgentProcess:
    """A new proposer, once the verifier's node knows it."""
    proposer = fleet.start(name, serve=("proposer=ngram",), peers=(verifier.address,))
    node_id = proposer.node_id
    async with client.fleet.watch() as events:
        async for _ in events:
            if any(node.node_id == node_id and node.card for node in await client.fleet.nodes()):
                return proposer
    raise AssertionError("the watch ended")


async def generate_with_fault(
    client: AsyncClient, history: Sequence[int], fault: Callable[[], None]
) -> Completion:
    """One generation with a remote proposer; the fault strikes at a third of it."""
    session = await client.create_session(
        "tiny", speculation=NGRAM, sink_tokens=4, window_tokens=16
    )
    async with session:
        await session.append(history)
        generation = session.generate(MAX_TOKENS)
        token_ids: list[int] = []
        struck = False
        async for tokens in generation:
            token_ids.extend(tokens.token_ids)
            if not struck and len(token_ids) >= MAX_TOKENS // 3:
                struck = True
                fault()
        assert struck
        assert generation.done is not None
        return Completion(tuple(token_ids), generation.done)


@pytest.fixture
async def client(verifier: AgentProcess):
    async with AsyncClient(verifier.address) as client:
        yield client


async def test_remote_drafts_never_change_the_stream(
    fleet: LocalFleet,
    shared_fleet: LocalFleet,
    verifier: AgentProcess,
    client: AsyncClient,
    prompt: tuple[int, ...],
    generate: Callable[..., Awaitable[Completion]],
) -> None:
    proposer = await proposer_for(shared_fleet, verifier, client, "drafter")
    for seed in (None, 7):
        alone = await generate(client, prompt, MAX_TOKENS, seed=seed)
        for block_size in (1, 4, 15):
            speculation = Speculation("ngram", node_id=proposer.node_id, block_size=block_size)
            drafted = await generate(client, prompt, MAX_TOKENS, seed=seed, speculation=speculation)
            assert drafted.token_ids == alone.token_ids
            assert drafted.done.speculation.drafted_count > 0
            assert drafted.done.speculation.proposer_node_id == proposer.node_id
    proposer.stop()


@pytest.mark.parametrize(
    ("number", "reasons"),
    [
        (signal.SIGKILL, {DropReason.UNREACHABLE, DropReason.DEADLINE}),
        (signal.SIGSTOP, {DropReason.DEADLINE}),
    ],
    ids=["killed", "frozen"],
)
async def test_a_lost_proposer_costs_no_token(
    shared_fleet: LocalFleet,
    verifier: AgentProcess,
    client: AsyncClient,
    prompt: tuple[int, ...],
    generate: Callable[..., Awaitable[Completion]],
    number: signal.Signals,
    reasons: set[DropReason],
) -> None:
    proposer = await proposer_for(shared_fleet, verifier, client, f"lost-{number}")
    alone = await generate(client, prompt, MAX_TOKENS)
    faulted = await generate_with_fault(client, prompt, lambda: proposer.signal(number))
    assert faulted.token_ids == alone.token_ids
    faults = {fault.reason: fault.count for fault in faulted.done.speculation.faults}
    assert faults
    assert set(faults) <= reasons
    assert faulted.done.speculation.drop_reason in reasons
    proposer.stop()


async def test_a_restarted_proposer_drafts_again(
    shared_fleet: LocalFleet,
    verifier: AgentProcess,
    client: AsyncClient,
    prompt: tuple[int, ...],
    generate: Callable[..., Awaitable[Completion]],
) -> None:
    first = await proposer_for(shared_fleet, verifier, client, "restarted")
    alone = await generate(client, prompt, 3 * MAX_TOKENS)
    session = await client.create_session(
        "tiny", speculation=NGRAM, sink_tokens=4, window_tokens=16
    )
    async with session:
        await session.append(prompt)
        before = await session.generate(MAX_TOKENS).collect()
        first.kill()
        without = await session.generate(MAX_TOKENS).collect()
        # The same name is the same identity, with a higher incarnation.
        second = await proposer_for(shared_fleet, verifier, client, "restarted")
        assert second.node_id == first.node_id
        after = await session.generate(MAX_TOKENS).collect()
    assert before.token_ids + without.token_ids + after.token_ids == alone.token_ids
    assert before.done.speculation.drafted_count > 0
    assert after.done.speculation.drafted_count > 0
    second.stop()
