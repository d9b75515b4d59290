"""A proposer that dies, freezes or comes back costs speed, never a token."""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

import pytest

from kakeya import AsyncClient, Completion, DropReason, Speculation
from scripts.support.agent_process import AgentProcess, LocalFleet
from scripts.support.placement import when_it_can_be_had
from tests.support.breadth import wide
from tests.support.patience import PATIENCE_SECONDS

MAX_TOKENS = 120
"""Behind a prompt as long, six times sink and window together."""
MIDDLE = 40
LASTING_TOKENS = 360
"""Much is left to draft when a fault strikes in the middle, however late a reader is: a verifier
that is slowed has the rest said in seconds."""
BLOCKS_LEFT_TOKENS = 20
"""Of several blocks: a draft is asked for behind the fault."""
STANDS_SECONDS = 0.1
"""At a time, while it is slowed: less than half of what a draft is waited for."""
ROOM_TOKENS = 1900
"""As many as the model has positions for, but for the prompt."""


async def proposer_for(
    fleet: LocalFleet, verifier: AgentProcess, client: AsyncClient, name: str, model: str = "ngram"
) -> AgentProcess:
    """A new proposer, once the verifier's node knows it."""
    proposer = fleet.start(name, serve=(f"proposer={model}",), peers=(verifier.address,))
    node_id = proposer.node_id
    async with client.fleet.watch() as events:
        async for _ in events:
            nodes = await client.fleet.nodes()
            if any(node.node_id == node_id and node.round_trip_seconds for node in nodes):
                return proposer
    raise AssertionError("the watch ended")


async def generate_with_fault(
    verifier: AgentProcess,
    client: AsyncClient,
    history: Sequence[int],
    speculation: Speculation,
    moment: int,
    fault: Callable[[], None],
) -> tuple[Completion, int]:
    """One generation with a remote proposer; the fault strikes after `moment` tokens.

    Also how many tokens were yet to be said once it had struck.
    """
    opening = partial(
        client.create_session, "tiny", speculation=speculation, sink_tokens=4, window_tokens=16
    )
    async with await when_it_can_be_had(opening) as session:
        await session.append(history)
        generation = session.generate(LASTING_TOKENS)
        token_ids: list[int] = []
        struck, left = moment == 0, LASTING_TOKENS
        if struck:
            fault()
        with verifier.slowed(STANDS_SECONDS) as speed_up:
            async for tokens in generation:
                token_ids.extend(tokens.token_ids)
                if not struck and len(token_ids) >= moment:
                    struck = True
                    fault()
                    said = (await session.info()).history_length - len(history)
                    left = LASTING_TOKENS - said
                if struck:
                    speed_up()
        assert struck
        assert generation.done is not None
        return Completion(tuple(token_ids), generation.done), left


@pytest.fixture
async def client(verifier: AgentProcess) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(verifier.address) as client:
        yield client


@pytest.fixture(scope="module")
def said_alone() -> dict[tuple[int | None, int], Completion]:
    """What the verifier said without drafts, by seed and length."""
    return {}


@pytest.fixture
async def alone(
    client: AsyncClient,
    prompt: tuple[int, ...],
    generate: Callable[..., Awaitable[Completion]],
    said_alone: dict[tuple[int | None, int], Completion],
) -> Callable[..., Awaitable[Completion]]:
    """The verifier's stream without drafts: (seed, length), each generated once in the module."""

    async def stream(seed: int | None = None, max_tokens: int = MAX_TOKENS) -> Completion:
        asked = seed, max_tokens
        if asked not in said_alone:
            said_alone[asked] = await generate(client, prompt, max_tokens, seed=seed)
        return said_alone[asked]

    return stream


@pytest.mark.wide
async def test_remote_drafts_never_change_the_stream(
    shared_fleet: LocalFleet,
    verifier: AgentProcess,
    client: AsyncClient,
    prompt: tuple[int, ...],
    generate: Callable[..., Awaitable[Completion]],
    alone: Callable[..., Awaitable[Completion]],
) -> None:
    proposer = await proposer_for(shared_fleet, verifier, client, "drafter")
    for seed, block_size in ((None, 1), (7, 4), (None, 15)):
        undrafted = await alone(seed)
        speculation = Speculation("ngram", node_id=proposer.node_id, block_size=block_size)
        ask = partial(generate, client, prompt, MAX_TOKENS, seed=seed, speculation=speculation)
        # The first draft of a busy machine may be late, and then none is asked for during a while.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                drafted = await when_it_can_be_had(ask)
                assert drafted.token_ids == undrafted.token_ids
                if drafted.done.speculation.drafted_count > 0:
                    break
        assert drafted.done.speculation.proposer_node_id == proposer.node_id
    proposer.stop()


@pytest.mark.parametrize(
    ("number", "reason", "moment"),
    [
        wide(signal.SIGKILL, None, 0),
        (signal.SIGKILL, None, MIDDLE),
        wide(signal.SIGSTOP, DropReason.DEADLINE, 1),
        (signal.SIGSTOP, DropReason.DEADLINE, MIDDLE),
    ],
)
async def test_a_lost_proposer_costs_no_token(
    shared_fleet: LocalFleet,
    verifier: AgentProcess,
    client: AsyncClient,
    prompt: tuple[int, ...],
    alone: Callable[..., Awaitable[Completion]],
    number: signal.Signals,
    reason: DropReason | None,
    moment: int,
) -> None:
    undrafted = await alone(None, LASTING_TOKENS)
    async with asyncio.timeout(PATIENCE_SECONDS):
        for attempt in itertools.count():
            name = f"lost-{number}-{moment}-{attempt}"
            proposer = await proposer_for(shared_fleet, verifier, client, name)
            # Of a fixed size, so that every block asks for a draft: a busy machine's pace may ask
            # for none.
            speculation = Speculation("ngram", node_id=proposer.node_id, block_size=4)
            fault = partial(proposer.signal, number)
            faulted, left = await generate_with_fault(
                verifier, client, prompt, speculation, moment, fault
            )
            proposer.stop()
            assert faulted.token_ids == undrafted.token_ids
            # Else a reader who was late had it strike when nothing was left to draft.
            if left >= BLOCKS_LEFT_TOKENS:
                break
    faults = {each.reason: each.count for each in faulted.done.speculation.faults}
    assert faults
    assert reason is None or reason in faults
    # A frozen one is unreachable too, once its peers hold it for dead.
    gone = {DropReason.UNREACHABLE, DropReason.DEADLINE}
    assert set(faults) <= gone
    assert faulted.done.speculation.drop_reason in gone


@pytest.mark.parametrize("model", ["tiny-dflash", wide("tiny")])
async def test_a_restarted_proposer_drafts_again_where_the_history_stands(
    model: str,
    shared_fleet: LocalFleet,
    verifier: AgentProcess,
    client: AsyncClient,
    prompt: tuple[int, ...],
    generate: Callable[..., Awaitable[Completion]],
) -> None:
    """One that is conditioned on the verifier, and a plain model: either reads what came before."""
    name = f"restarted-{model}"
    first = await proposer_for(shared_fleet, verifier, client, name, model)
    opening = partial(
        client.create_session,
        "tiny",
        speculation=Speculation(model, node_id=first.node_id, block_size=4),
        sink_tokens=4,
        window_tokens=16,
    )
    async with await when_it_can_be_had(opening) as session:
        await session.append(prompt)
        # The first drafts of a busy machine may be late, or the way of the vectors not open yet.
        while not (await session.generate(40).collect()).done.speculation.drafted_count:
            assert session.history_length < ROOM_TOKENS // 2
        first.kill()
        without = await session.generate(60).collect()
        assert without.done.speculation.drop_reason is not None
        # The same name is the same identity, with a higher incarnation.
        second = await proposer_for(shared_fleet, verifier, client, name, model)
        assert second.node_id == first.node_id
        drafts_soundly = False
        # The first attempts may still meet the connection that broke.
        while not drafts_soundly and session.history_length < ROOM_TOKENS:
            after = (await session.generate(50).collect()).done.speculation
            drafts_soundly = after.drafted_count > 0 and not after.faults
        assert drafts_soundly
        generated = session.history[len(prompt) :]
    alone = await generate(client, prompt, len(generated))
    assert generated == alone.token_ids
    second.stop()
