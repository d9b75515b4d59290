"""One fleet with both back ends: each one's verifier drafted for by the other's proposer."""

import asyncio
import os
import shutil
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from kakeya import AsyncClient, AsyncSession, Completion, ModelKind, Speculation
from kakeya.options import GenerateOptions
from scripts.support.agent_process import AgentProcess, LocalFleet
from scripts.support.placement import when_it_can_be_had

pytest.importorskip("mlx.core", reason="MLX is not installed")

BACKENDS = ("torch", "mlx")
OTHER = {"torch": "mlx", "mlx": "torch"}
SINK, WINDOW = 4, 32
WIDTH = 32
"""Of a small random model's context vectors, in numbers."""
HISTORY = tuple((token * 7 + index) % 90 + 3 for index, token in enumerate(range(100)))
COUNT = 48
"""With the history several times sink and window together."""
BLOCK = 7
"""All that the drafter drafts in one."""
FIRST, LASTING = 8, 288
"""Much is left to draft when a fault strikes behind the first."""

pytestmark = [pytest.mark.wide, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Mixed:
    """A fleet with a verifier and a drafter on each back end, and clients of the verifiers."""

    fleet: LocalFleet
    drafter: Path
    verifiers: Mapping[str, AgentProcess]
    proposers: dict[str, AgentProcess]

    def start_proposer(self, backend: str) -> AgentProcess:
        peers = tuple(agent.address for agent in self.verifiers.values())
        roles = [f"proposer={self.drafter}"]
        if backend == "torch":
            roles.append("archive=64MiB")
        agent = start(self.fleet, f"proposer-{backend}", backend, roles, peers)
        self.proposers[backend] = agent
        return agent


def start(
    fleet: LocalFleet, name: str, backend: str, roles: Sequence[str], peers: Sequence[str] = ()
) -> AgentProcess:
    return fleet.start(
        name,
        serve=roles,
        peers=peers,
        # What is asked here is whether drafts come, not how fast on a busy machine.
        environment={"KAKEYA_BACKEND": backend, "KAKEYA_DRAFT_DEADLINE_SECONDS": "10"},
    )


@pytest.fixture(scope="module")
def mixed(
    random_checkpoint: Callable[..., Path],
    random_drafter: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mixed]:
    model = tmp_path_factory.mktemp("models") / "small"
    shutil.copytree(random_checkpoint(), model)
    drafter = random_drafter(model, "small-dflash", num_hidden_layers=1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with LocalFleet(f"scenario-{uuid.uuid4().hex}") as fleet:
        verifiers = {
            backend: start(fleet, f"verifier-{backend}", backend, [f"verifier={model}"])
            for backend in BACKENDS
        }
        mixed = Mixed(fleet, drafter, verifiers, {})
        for backend in BACKENDS:
            mixed.start_proposer(backend)
        yield mixed


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The verifier's."""
    return str(request.param)


@pytest.fixture
async def client(mixed: Mixed, backend: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(mixed.verifiers[backend].address) as client:
        yield client


async def known(client: AsyncClient, agent: AgentProcess, backend: str) -> Speculation:
    """The proposer, once the verifier's node knows the way to it and its card says what it is."""
    async with client.fleet.watch() as events:
        async for _ in events:
            for node in await client.fleet.nodes():
                # A card from before its models were loaded may still be the latest here.
                if node.node_id == agent.node_id and node.round_trip_seconds and node.models:
                    (offer,) = node.models
                    assert (offer.kind, offer.backend) == (ModelKind.DFLASH, backend)
                    # Whoever names a size has its drafts, also where it would be better off alone.
                    return Speculation("small-dflash", node_id=agent.node_id, block_size=BLOCK)
    raise AssertionError("the watch ended")


async def opened(
    client: AsyncClient,
    speculation: Speculation | Literal["auto", "off"],
    kv_strategy: str = "sink_window",
) -> AsyncSession:
    """Its strategy is named: the node's own choice changes once it hears of the archive."""

    def once() -> Awaitable[AsyncSession]:
        return client.create_session(
            "small",
            speculation=speculation,
            kv_strategy=kv_strategy,
            sink_tokens=SINK,
            window_tokens=WINDOW,
        )

    return await when_it_can_be_had(once)


async def answer(
    client: AsyncClient,
    speculation: Speculation | Literal["auto", "off"],
    history: Sequence[int] = HISTORY,
    *,
    seed: int | None = None,
    count: int = COUNT,
    kv_strategy: str = "sink_window",
) -> Completion:
    async with await opened(client, speculation, kv_strategy) as session:
        await session.append(history)
        sampled: GenerateOptions = {} if seed is None else {"temperature": 0.9, "seed": seed}
        return await session.generate(count, **sampled).collect()


def assert_drafted(done: Completion, proposer: AgentProcess) -> None:
    """By that node, and from the features of all that was committed."""
    said = done.done.speculation
    assert said.proposer_node_id == proposer.node_id
    assert (said.drop_reason, said.faults) == (None, ())
    assert said.drafted_count >= 15


async def test_the_vectors_of_all_that_was_committed_travel_and_the_tokens_are_the_verifiers(
    mixed: Mixed, backend: str, client: AsyncClient
) -> None:
    """One a position but the last, once each. Sampled; the others compare greedy tokens."""
    proposer = mixed.proposers[OTHER[backend]]
    async with await opened(client, await known(client, proposer, OTHER[backend])) as session:
        await session.append(HISTORY)
        paired = await session.generate(COUNT, temperature=0.9, seed=20).collect()
        (link,) = (
            link
            for link in (await client.fleet.node()).tensor_links
            if link.peer_node_id == proposer.node_id
        )
    assert_drafted(paired, proposer)
    assert link.is_caller
    # In two bytes or in four each; the last blocks may still wait.
    least = (len(HISTORY) + COUNT - 32) * WIDTH
    assert 2 * least <= link.byte_count <= 4 * (len(HISTORY) + COUNT) * WIDTH
    alone = await answer(client, "off", seed=20)
    assert paired.token_ids == alone.token_ids
    assert len(set(alone.token_ids)) > 3


async def test_interleaved_sessions_of_both_verifiers(mixed: Mixed) -> None:
    async def of(backend: str) -> list[tuple[Completion, Completion]]:
        proposer = mixed.proposers[OTHER[backend]]
        async with AsyncClient(mixed.verifiers[backend].address) as client:
            speculation = await known(client, proposer, OTHER[backend])
            histories = (HISTORY, HISTORY[::-1][:70])
            asked: tuple[Speculation, Literal["off"]] = (speculation, "off")
            found = await asyncio.gather(
                *(answer(client, how, history) for history in histories for how in asked)
            )
        for paired in found[::2]:
            assert_drafted(paired, proposer)
        return list(zip(found[::2], found[1::2], strict=True))

    for pairs in await asyncio.gather(*(of(backend) for backend in BACKENDS)):
        for paired, alone in pairs:
            assert paired.token_ids == alone.token_ids
        assert pairs[0][0].token_ids != pairs[1][0].token_ids


async def test_an_archive_on_torch_restores_what_either_evicts(
    mixed: Mixed, backend: str, client: AsyncClient
) -> None:
    proposer = mixed.proposers[OTHER[backend]]
    speculation = await known(client, proposer, OTHER[backend])
    await known(client, mixed.proposers["torch"], "torch")
    kinds = ("restored", "sink_window")
    alone = {kind: await answer(client, "off", kv_strategy=kind) for kind in kinds}
    paired = await answer(client, speculation, kv_strategy="restored")
    assert paired.token_ids == alone["restored"].token_ids
    assert paired.token_ids != alone["sink_window"].token_ids
    assert paired.done.restorer_rebuild_count == 0
    assert_drafted(paired, proposer)


async def test_a_proposer_killed_in_mid_answer_costs_no_token(
    mixed: Mixed, backend: str, client: AsyncClient
) -> None:
    proposer = mixed.proposers[OTHER[backend]]
    async with await opened(client, await known(client, proposer, OTHER[backend])) as session:
        await session.append(HISTORY)
        # The first drafts come, however slow the node will be.
        await session.generate(FIRST).collect()
        generation = session.generate(LASTING)
        alive = True
        with mixed.verifiers[backend].slowed() as speed_up:
            async for tokens in generation:
                if alive and tokens.first_index >= len(HISTORY) + FIRST + 12:
                    alive = False
                    proposer.signal(signal.SIGKILL)
                    speed_up()
        assert generation.done is not None
        assert generation.done.speculation.drafted_count > 0
        assert generation.done.speculation.drop_reason is not None
        generated = session.history[len(HISTORY) :]
    alone = await answer(client, "off", count=FIRST + LASTING)
    assert generated == alone.token_ids
