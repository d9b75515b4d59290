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

WINDOW_TOKENS = 512
MAX_TOKENS = 40
POSITION_BYTES = 256
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


async def with_fault(
    session: AsyncSession, moment: int, fault: Callable[[], None]
) -> tuple[int, ...]:
    """One generation; the fault strikes after `moment` tokens."""
    token_ids: list[int] = []
    struck = False
    async for tokens in session.generate(MAX_TOKENS, **SAMPLED):
        token_ids.extend(tokens.token_ids)
        if not struck and len(token_ids) >= moment:
            struck = True
            fault()
    assert struck
    return tuple(token_ids)


async def names(session: AsyncSession) -> list[str]:
    """The nodes that share a session, by rising positions; empty for the verifier's own."""
    restorer = (await session.info()).restorer
    assert restorer is not None
    return [held.archive.node_name for held in restorer.archives]


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
        async with await restored(client, "full") as full:
            await full.append(HISTORY)
            expected = [
                (await full.generate(MAX_TOKENS, **SAMPLED).collect()).token_ids for _ in range(3)
            ]
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
        # By then the archive was quick often enough for the verifier to rely on it.
        found = await with_fault(session, 20, partial(freeze, archives[second]))
        going = False
        await beside
        await aside.close()
        assert found == expected[0]
        assert max(stalls) < 7.0
        assert second not in await names(session)
        restorer = (await session.info()).restorer
        assert restorer is not None
        assert restorer.rebuild_count >= 1
        archives.pop(second).kill()

        # Killed, the first of two, in the middle of a generation.
        first, _ = await names(session)
        assert await with_fault(session, 10, archives.pop(first).kill) == expected[1]
        assert len(await names(session)) == 2

        # All of them killed: it goes on in the verifier's own memory.
        def kill_all() -> None:
            for archive in archives.values():
                archive.kill()

        assert await with_fault(session, 7, kill_all) == expected[2]
        info = await session.info()
        assert await names(session) == [""]
        assert info.kv_bytes >= before + (len(HISTORY) - WINDOW_TOKENS) * POSITION_BYTES
        assert info.plan is not None
        assert any("kept here" in reason for reason in info.plan.reasons)
        await session.close()
