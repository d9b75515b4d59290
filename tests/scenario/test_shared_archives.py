"""Archives that share a session, killed and frozen one after the other: never a token lost."""

import asyncio
import os
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from kakeya import AsyncClient, AsyncSession, Liveness
from kakeya.options import GenerateOptions
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from scripts.support.agent_process import AgentProcess, LocalFleet
from tests.support import checkpoint as random_model
from tests.support.checkpoint import POSITION_BYTES

WINDOW_TOKENS = 512
MOST_TOKENS = 7_000
"""Of a generation that is left before its end: two archives have room for its history."""
ONE_CHUNK = f"archive={CHUNK_KEYS * POSITION_BYTES >> 20}MiB"
HISTORY = tuple(
    (7 * index + index // 11 + index * index // 1013) % 96
    for index in range(CHUNK_KEYS + WINDOW_TOKENS + 300)
)
SAMPLED: GenerateOptions = {"temperature": 1.0, "seed": 11}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of two layers with 40,960 positions."""
    return random_model.make(tmp_path_factory.mktemp("models") / "long", 40_960)


@pytest.fixture
def agents() -> Iterator[LocalFleet]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with LocalFleet(f"scenario-{uuid.uuid4().hex}") as fleet:
        yield fleet


async def known(client: AsyncClient, archives: list[AgentProcess]) -> None:
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


async def restored(client: AsyncClient, kv_strategy: str = "restored") -> AsyncSession:
    return await client.create_session(
        "long",
        kv_strategy=kv_strategy,
        sink_tokens=4,
        window_tokens=WINDOW_TOKENS,
        speculation="off",
    )


class Answer:
    """A generation that goes on through faults, and has no end that it could reach before them.

    However fast the node is, and slow this reader: the node may be far ahead of what is read.
    """

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self._generation = session.generate(MOST_TOKENS, **SAMPLED)
        self._blocks = aiter(self._generation)
        self.token_ids: dict[int, int] = {}
        """By position."""

    async def read(self, count: int) -> None:
        """Reads so many tokens more."""
        wanted = len(self.token_ids) + count
        while len(self.token_ids) < wanted:
            tokens = await anext(self._blocks)
            self.token_ids.update(enumerate(tokens.token_ids, tokens.first_index))

    async def struck(self, fault: Callable[[], None], gone: set[str], count: int) -> None:
        """Reads on until `count` share it after the fault, none of those that are `gone`."""
        fault()
        sharing = await names(self._session)
        while gone & set(sharing) or len(sharing) != count:
            await self.read(1)
            sharing = await names(self._session)
        await self.read(10)

    async def leave(self) -> None:
        """Ends it."""
        await self._generation.aclose()


async def names(session: AsyncSession) -> list[str]:
    """The nodes that share a session, by rising positions; empty for the verifier's own."""
    restorer = (await session.info()).restorer
    assert restorer is not None
    return [held.archive.node_name for held in restorer.archives]


@pytest.mark.wide
@pytest.mark.timeout(300)
async def test_a_shared_session_outlives_its_archives_and_then_all_of_them(
    agents: LocalFleet, checkpoint: Path, freeze: Callable[[AgentProcess], None]
) -> None:
    verifier = agents.start(
        "verifier",
        serve=(f"verifier={checkpoint}",),
        # Far more than what an archive that was quick is waited for.
        environment={"KAKEYA_ARCHIVE_DEADLINE_SECONDS": "15"},
    )
    archives = {
        name: agents.start(name, serve=(spec,), peers=(verifier.address,))
        for name, spec in (("a", ONE_CHUNK), ("b", ONE_CHUNK), ("c", ONE_CHUNK), ("d", ONE_CHUNK))
    }
    async with AsyncClient(verifier.address) as client:
        await known(client, list(archives.values()))
        session = await restored(client)
        await session.append(HISTORY)
        before = (await session.info()).kv_bytes

        # Frozen while its answer is waited for, or a carry sent to it: another session of
        # the same verifier, on none of the two, goes on soon.
        _, second = await names(session)
        aside = await client.create_session(
            "long", speculation="off", kv_strategy="sink_window", window_tokens=16
        )
        await aside.append(HISTORY[:50])
        stalls: list[float] = []
        going = True

        async def aside_goes_on() -> None:
            while going:
                began = time.monotonic()
                await aside.generate(1).collect()
                stalls.append(time.monotonic() - began)

        beside = asyncio.create_task(aside_goes_on())
        answer = Answer(session)
        # By then the archive was quick often enough for the verifier to rely on it.
        await answer.read(40)
        await answer.struck(partial(freeze, archives[second]), {second}, 2)
        going = False
        await beside
        await aside.close()
        assert max(stalls) < 7.0
        restorer = (await session.info()).restorer
        assert restorer is not None
        assert restorer.rebuild_count >= 1
        archives.pop(second).kill()

        # Killed, the first of two.
        first, _ = await names(session)
        await answer.struck(archives.pop(first).kill, {first}, 2)

        # All of them killed: it goes on in the verifier's own memory.
        def kill_all() -> None:
            for archive in archives.values():
                archive.kill()

        await answer.struck(kill_all, set(archives), 1)
        assert await names(session) == [""]
        await answer.leave()
        info = await session.info()
        assert info.kv_bytes >= before + (len(HISTORY) - WINDOW_TOKENS) * POSITION_BYTES
        assert info.plan is not None
        assert any("kept here" in reason for reason in info.plan.reasons)
        await session.close()
        async with await restored(client, "full") as full:
            await full.append(HISTORY)
            alone = await full.generate(len(answer.token_ids), **SAMPLED).collect()
        assert answer.token_ids == dict(enumerate(alone.token_ids, len(HISTORY)))
