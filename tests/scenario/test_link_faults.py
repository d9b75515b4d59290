"""Links of every kind between real agents, killed and frozen at every end: never a token.

One fleet: a verifier for each configuration of links but gRPC alone, which all other scenarios
have, and a proposer that takes any.
"""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import pytest

from kakeya import AsyncClient, AsyncSession, LinkChange, Speculation, TensorLink, Transport
from kakeya.options import GenerateOptions
from scripts.support.agent_process import AgentProcess, LocalFleet
from tests.support.patience import PATIENCE_SECONDS

CHILD = "ring_child"
PROMPT = tuple((token * 7 + index) % 900 + 20 for index, token in enumerate(range(120)))
WINDOW = 64
BLOCK = 7
MODES = ("local", "auto", "ring")
# With a proposer of another process of the same host.
CARRIED = {"local": Transport.LOCAL, "ring": Transport.RING}

pytestmark = [
    pytest.mark.wide,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="MLX is not installed"),
]


@dataclass
class Chaos:
    """The fleet, its proposer, and every process that was seen below its agents."""

    fleet: LocalFleet
    folder: Path
    verifiers: dict[str, AgentProcess] = field(default_factory=dict)
    seen: set[psutil.Process] = field(default_factory=set)

    def start(self, name: str, role: str, links: str, peers: tuple[str, ...] = ()) -> AgentProcess:
        return self.fleet.start(
            name,
            serve=(role,),
            peers=peers,
            environment={
                "KAKEYA_LINKS": links,
                "TMPDIR": str(self.folder),
                "OMP_NUM_THREADS": "1",
                # What is asked is whether drafts come, not how fast on a busy machine.
                "KAKEYA_DRAFT_DEADLINE_SECONDS": "2",
            },
        )

    def start_proposer(self) -> AgentProcess:
        peers = tuple(agent.address for agent in self.verifiers.values())
        self.proposer = self.start("proposer", "proposer=tiny-dflash", "auto", peers)
        return self.proposer

    def ring_child(self, agent: AgentProcess) -> psutil.Process | None:
        """The process of the agent's ring, if it has one."""
        found = None
        for process in psutil.Process(agent.pid).children(recursive=True):
            try:
                is_ring = any(CHILD in word for word in process.cmdline())
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
            self.seen.add(process)
            found = process if is_ring else found
        return found


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chaos]:
    folder = tmp_path_factory.mktemp("agents-temporary")
    shared = _roads_in_shared_memory()
    with LocalFleet(f"scenario-{uuid.uuid4().hex}") as fleet:
        chaos = Chaos(fleet, folder)
        for mode in MODES:
            chaos.verifiers[mode] = chaos.start(f"verifier-{mode}", "verifier=tiny", mode)
        chaos.start_proposer()
        yield chaos
        agents = [
            psutil.Process(agent.pid) for agent in (*chaos.verifiers.values(), chaos.proposer)
        ]
        ports = {port for each in agents for port in _listening(each)}
    # Whatever was killed: no process, file or name of it is left, and no port is taken.
    _, left = psutil.wait_procs([*chaos.seen, *agents], timeout=PATIENCE_SECONDS)
    assert not left
    # Torch makes a folder for its compiler, which nothing here uses.
    assert [path for path in folder.iterdir() if "torchinductor" not in path.name] == []
    assert _roads_in_shared_memory() <= shared
    assert ports
    mine = psutil.Process().children(recursive=True)
    assert not ports & {port for each in mine for port in _listening(each)}


def _listening(process: psutil.Process) -> set[int]:
    connections = process.net_connections("tcp")
    return {entry.laddr.port for entry in connections if entry.status == "LISTEN"}


def _roads_in_shared_memory() -> set[Path]:
    return set(Path("/dev/shm").glob("kakeya*"))


async def until(condition: Callable[[], object], seen: Callable[[], object] = str) -> None:
    """Waits for what nothing announces; the condition may be asynchronous.

    What was `seen` last is told where it does not come about.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        held = condition()
        if asyncio.iscoroutine(held):
            held = await held
        if held:
            return
        assert time.monotonic() < end, f"it did not come about: {seen()}"
        await asyncio.sleep(0.05)


async def form_rings(*agents: AgentProcess) -> None:
    """Waits until each has tried one: who asks before asks again later, and ever more seldom."""
    for agent in agents:
        async with AsyncClient(agent.address) as client:

            async def offers_one(client: AsyncClient = client) -> bool:
                return bool((await client.fleet.node()).card.ring_address)

            await until(offers_one, partial(no_ring, agent))


def no_ring(agent: AgentProcess) -> str:
    """What it logged of its trial."""
    lines = [line for line in agent.log.splitlines() if "no_ring" in line]
    return f"{agent.options.name} forms no ring: {lines or 'it has not ended its trial'}"


class Talk:
    """One session of a verifier with the proposer, and all that its generations told."""

    session: AsyncSession

    def __init__(self, client: AsyncClient, seed: int | None) -> None:
        self.client = client
        self.sampled: GenerateOptions = {} if seed is None else {"temperature": 0.9, "seed": seed}
        self.calls: list[tuple[tuple[int, ...], int]] = []
        self.generated: list[int] = []
        self.changes: list[LinkChange] = []
        self.drafted_count = 0
        self.drafted_soundly = False

    async def say(
        self,
        count: int,
        tokens: tuple[int, ...] = (),
        *,
        at: int = 0,
        strike: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Appends and generates; `strike` is called after `at` tokens."""
        if tokens:
            await self.session.append(tokens)
        generation = self.session.generate(count, **self.sampled)
        came: list[int] = []
        async for block in generation:
            came.extend(block.token_ids)
            if strike is not None and len(came) >= at:
                await strike()
                strike = None
        assert strike is None
        assert generation.done is not None
        self.calls.append((tokens, len(came)))
        self.generated.extend(came)
        self.changes.extend(generation.done.link_changes)
        said = generation.done.speculation
        self.drafted_count += said.drafted_count
        self.drafted_soundly = said.drafted_count > 0 and not said.faults

    async def link(self) -> TensorLink | None:
        """The session's link, as the verifier's node has it."""
        links = (await self.client.fleet.node()).tensor_links
        return next((link for link in links if link.is_caller), None)

    async def begin(self, mode: str, proposer: AgentProcess) -> None:
        """Says the first tokens, and goes on until the mode's road carries the link.

        On a busy host a first draft may come too late, and it is asked for again.
        """
        await self.say(24, PROMPT)
        if not self.drafted_soundly:
            await self.drafts_again(proposer)
        await self.carried_by(CARRIED[mode])

    async def carried_by(self, transport: Transport, demotions: int = 0) -> None:
        """Waits until the link is, after so many demotions."""
        link: TensorLink | None = None

        async def is_carried() -> bool:
            nonlocal link
            link = await self.link()
            return link is not None and (
                (link.transport, link.demotion_count) == (transport, demotions)
            )

        await until(is_carried, lambda: link)

    async def demoted(self, demotions: int) -> None:
        """Goes on until the link has left its road: what is frozen is found where it is used.

        An answer may be at its end before that.
        """

        async def is_demoted() -> bool:
            link = await self.link()
            if link is not None and link.demotion_count == demotions:
                return True
            await self.say(4)
            return False

        await until(is_demoted)

    async def can_draft(self, proposer: AgentProcess) -> None:
        """Waits until the verifier's node knows the way to it, and asks it for drafts."""
        node_id = proposer.node_id

        async def can_draft() -> bool:
            nodes = await self.client.fleet.nodes()
            links = (await self.client.fleet.node()).links
            return any(node.node_id == node_id and node.round_trip_seconds for node in nodes) and (
                not any(link.breaker_open for link in links if link.node_id == node_id)
            )

        await until(can_draft)

    async def drafts_again(self, proposer: AgentProcess) -> None:
        """Waits until drafts come soundly again, which they do before the text is at its end."""
        for _ in range(12):
            await self.can_draft(proposer)
            await self.say(16)
            if self.drafted_soundly:
                return
        raise AssertionError("no drafts came any more")

    async def alone(self) -> list[int]:
        """What the verifier says alone to the same calls."""
        session = await self.client.create_session(
            "tiny", speculation="off", sink_tokens=4, window_tokens=WINDOW
        )
        came: list[int] = []
        async with session:
            for tokens, count in self.calls:
                if tokens:
                    await session.append(tokens)
                came += (await session.generate(count, **self.sampled).collect()).token_ids
        return came


Talks = Callable[..., Awaitable[Talk]]


@pytest.fixture
async def talks(chaos: Chaos) -> AsyncIterator[Talks]:
    """Opens a session by mode: (mode, seed=None)."""
    opened: list[Talk] = []
    clients: list[AsyncClient] = []

    async def talk(mode: str, seed: int | None = None) -> Talk:
        clients.append(AsyncClient(chaos.verifiers[mode].address))
        await clients[-1].__aenter__()
        talk = Talk(clients[-1], seed)
        await talk.can_draft(chaos.proposer)
        if mode == "ring":
            await form_rings(chaos.verifiers[mode], chaos.proposer)
        talk.session = await talk.client.create_session(
            "tiny",
            # Whoever names a size has its drafts, also where it would be better off alone.
            speculation=Speculation(
                "tiny-dflash", node_id=chaos.proposer.node_id, block_size=BLOCK
            ),
            sink_tokens=4,
            window_tokens=WINDOW,
        )
        opened.append(talk)
        return talk

    yield talk
    for each in opened:
        await each.session.close()

        async def is_over(each: Talk = each) -> bool:
            return await each.link() is None

        await until(is_over)
    for client in clients:
        await client.__aexit__(None, None, None)
    agents = [agent for agent in (*chaos.verifiers.values(), chaos.proposer) if agent.running]
    await until(lambda: not any(chaos.ring_child(agent) for agent in agents))


async def test_large_tensors_find_their_road_and_the_tokens_are_the_verifiers(
    talks: Talks,
) -> None:
    talk = await talks("auto", 12)
    # For the first of them both ways are tried in turn.
    for turn in range(9):
        await talk.say(16, PROMPT[turn:] + (turn + 1,) * 24)
    link = await talk.link()
    assert link is not None
    assert link.generation == 1
    # On a busy host a draft may go without the vectors that it waits 50 ms for.
    assert talk.drafted_count > 50
    assert talk.generated == await talk.alone()
    assert len(set(talk.generated)) > 3


async def test_ring_children_that_are_lost_cost_no_token(chaos: Chaos, talks: Talks) -> None:
    """The verifier's killed, then the proposer's frozen."""
    talk = await talks("ring", 5)
    await talk.begin("ring", chaos.proposer)
    ends = chaos.verifiers["ring"], chaos.proposer
    for demotion, number in enumerate((signal.SIGKILL, signal.SIGSTOP)):
        children = [chaos.ring_child(agent) for agent in ends]
        child = children[demotion]
        assert child is not None
        both = [each for each in children if each is not None]
        assert both == children
        await talk.say(120, at=20, strike=partial(send, child, number))
        await talk.demoted(demotion + 1)
        await talk.carried_by(Transport.RING, demotion + 1)
        # Neither of the processes before carries on.
        _, left = psutil.wait_procs(both, timeout=PATIENCE_SECONDS)
        assert not left
        await talk.drafts_again(chaos.proposer)
    assert talk.generated == await talk.alone()
    # Told in order, each once, with reasons; the ring that comes after is another.
    ring, grpc = Transport.RING, Transport.GRPC
    assert [change.transport for change in talk.changes] == [ring, grpc, ring, grpc, ring]
    for up, down, again in (talk.changes[:3], talk.changes[2:]):
        assert up.generation == down.generation < again.generation
        assert "ring" in down.reason
    link = await talk.link()
    assert link is not None
    assert (link.generation, link.reason) == (talk.changes[-1].generation, talk.changes[-1].reason)


async def send(process: psutil.Process, number: signal.Signals) -> None:
    """The signal."""
    process.send_signal(number)


async def both(chaos: Chaos, talks: Talks) -> tuple[Talk, ...]:
    """A session over a ring and one over shared memory, which carry them already."""
    opened = (await talks("ring"), await talks("local", 3))
    for mode, talk in zip(("ring", "local"), opened, strict=True):
        await talk.begin(mode, chaos.proposer)
    return opened


async def struck(opened: Sequence[Talk], fault: Callable[[], None]) -> None:
    """The fault strikes within the sessions' generations, which all end, and is met.

    An answer may be decided to its end before its first tokens are read.
    """
    struck = False

    async def strike() -> None:
        nonlocal struck
        if not struck:
            struck = True
            fault()

    await asyncio.gather(*(talk.say(120, at=20, strike=strike) for talk in opened))
    while all(talk.drafted_soundly for talk in opened):
        await asyncio.gather(*(talk.say(16) for talk in opened))


async def test_a_proposer_that_is_frozen_and_then_killed_leaves_nothing_and_drafts_again(
    chaos: Chaos, talks: Talks
) -> None:
    opened = await both(chaos, talks)
    proposer = chaos.proposer
    # It is waited for no longer than its deadline.
    try:
        await struck(opened, lambda: proposer.signal(signal.SIGSTOP))
    finally:
        proposer.signal(signal.SIGCONT)
    for mode, talk in zip(("ring", "local"), opened, strict=True):
        await talk.drafts_again(proposer)
        assert talk.changes[0].transport == CARRIED[mode]
    children = [chaos.ring_child(agent) for agent in (chaos.verifiers["ring"], proposer)]
    assert chaos.ring_child(chaos.verifiers["local"]) is None
    await struck(opened, lambda: proposer.signal(signal.SIGKILL))
    _, left = psutil.wait_procs([child for child in children if child], timeout=PATIENCE_SECONDS)
    assert not left
    again = chaos.start_proposer()
    assert again.node_id == proposer.node_id
    await form_rings(again)
    for mode, talk in zip(("ring", "local"), opened, strict=True):
        await talk.drafts_again(again)
        # Another link, with a road of its own.
        await talk.carried_by(CARRIED[mode])
        await talk.drafts_again(again)
        assert talk.generated == await talk.alone()
