"""An archive that dies, freezes, leaves or comes back costs time, never a token."""

import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial

import pytest

from kakeya import (
    AsyncClient,
    AsyncSession,
    Completion,
    Liveness,
    NoArchive,
    RestorerInfo,
    RestorerLost,
    SessionInfo,
    StopReason,
)
from scripts.support.agent_process import AgentProcess, LocalFleet

WINDOW_TOKENS = 64
# More than a node that is slowed is ahead of its reader when a fault strikes.
MAX_TOKENS = 100
STANDS_SECONDS = 0.1
# Of an archive's answer. One that was quick is waited for a second at least.
DEADLINE_SECONDS = 3


@pytest.fixture(scope="module")
def restoring() -> Iterator[LocalFleet]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with LocalFleet(f"scenario-{uuid.uuid4().hex}") as agents:
        yield agents


@pytest.fixture(scope="module")
def restored_verifier(restoring: LocalFleet) -> AgentProcess:
    agent = restoring.start(
        "verifier",
        serve=("verifier=tiny",),
        environment={
            "KAKEYA_RESTORER_WAIT_SECONDS": "2",
            # For the frozen ones, whose silence is waited for twice.
            "KAKEYA_ARCHIVE_DEADLINE_SECONDS": str(DEADLINE_SECONDS),
        },
    )
    assert agent.ready["address"]
    return agent


@pytest.fixture
async def client(restored_verifier: AgentProcess) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(restored_verifier.address) as client:
        yield client


@pytest.fixture
def history(prompt: tuple[int, ...]) -> tuple[int, ...]:
    """Longer than sink, window and the first segment of an archive together."""
    return tuple((token * 7 + index) % 900 + 20 for index, token in enumerate(prompt * 3))


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


async def restored_session(
    client: AsyncClient, archive: AgentProcess | None = None
) -> AsyncSession:
    return await client.create_session(
        "tiny",
        kv_strategy="restored",
        sink_tokens=4,
        window_tokens=WINDOW_TOKENS,
        speculation="off",
        restorer_node_id=archive.node_id if archive is not None else "",
    )


def archive_of(session: AsyncSession) -> str:
    """The node of the archive that it was planned with."""
    assert session.plan.archive is not None
    return session.plan.archive.node_id


def restorer_of(info: SessionInfo) -> RestorerInfo:
    assert info.restorer is not None
    return info.restorer


async def full_stream(client: AsyncClient, history: Sequence[int]) -> tuple[int, ...]:
    async with await client.create_session("tiny", kv_strategy="full", speculation="off") as full:
        await full.append(history)
        return (await full.generate(MAX_TOKENS).collect()).token_ids


async def with_fault(
    verifier: AgentProcess,
    session: AsyncSession,
    history: Sequence[int],
    moment: int,
    fault: Callable[[], None],
) -> Completion:
    """One generation; the fault strikes after `moment` tokens."""
    await session.append(history)
    generation = session.generate(MAX_TOKENS)
    token_ids: list[int] = []
    struck = False
    with verifier.slowed(STANDS_SECONDS) as speed_up:
        async for tokens in generation:
            token_ids.extend(tokens.token_ids)
            if not struck and len(token_ids) >= moment:
                struck = True
                fault()
                speed_up()
    assert struck
    assert generation.done is not None
    return Completion(tuple(token_ids), generation.done)


@pytest.mark.timeout(300)
async def test_the_stream_outlives_every_archive(
    restoring: LocalFleet,
    restored_verifier: AgentProcess,
    client: AsyncClient,
    history: tuple[int, ...],
    freeze: Callable[[AgentProcess], None],
) -> None:
    def start(name: str) -> AgentProcess:
        return restoring.start(name, serve=("archive=64MiB",), peers=(restored_verifier.address,))

    archives = {agent.node_id: agent for agent in [start("a"), start("b"), start("c")]}
    await known(client, *archives.values())
    with pytest.raises(NoArchive, match="fleet join --serve archive"):
        await restored_session(client, restored_verifier)
    expected = await full_stream(client, history)

    # Killed in mid-generation.
    async with await restored_session(client) as session:
        used = archives.pop(archive_of(session))
        completion = await with_fault(restored_verifier, session, history, 20, used.kill)
        assert completion.token_ids == expected
        assert completion.done.restorer_rebuild_count == 1
        info = await session.info()
        assert restorer_of(info).node_id in archives
        assert restorer_of(info).rebuild_count == 1
        evicted = len(history) + MAX_TOKENS - WINDOW_TOKENS - 4
        assert abs(restorer_of(info).evicted_token_count - evicted) <= WINDOW_TOKENS
        assert info.resident_token_count <= 4 + WINDOW_TOKENS

    # Frozen in mid-generation: nothing is closed, nothing answers.
    session = await restored_session(client)
    used = archives.pop(archive_of(session))
    completion = await with_fault(restored_verifier, session, history, 20, partial(freeze, used))
    assert completion.token_ids == expected
    assert completion.done.restorer_rebuild_count == 1
    used.kill()

    # None is left that answers: one that was to be on this very archive fails by name,
    # and lives; the other goes on with what the verifier's own memory has room for.
    (last,) = archives.values()
    assert restorer_of(await session.info()).node_id == last.node_id
    named = await restored_session(client, last)
    await named.append(history)
    freeze(last)
    # A caller's own deadline, behind the archive's, bounds the search for another one, too.
    short = await named.generate(MAX_TOKENS, deadline_seconds=DEADLINE_SECONDS + 0.2).collect()
    assert (short.token_ids, short.done.stop_reason) == ((), StopReason.DEADLINE)
    with pytest.raises(RestorerLost, match="no archive"):
        await named.generate(MAX_TOKENS).collect()
    info = await named.info()
    assert restorer_of(info).lost
    assert info.history_length == len(history)
    before = (await session.info()).kv_bytes
    late = (await session.generate(20).collect()).token_ids
    info = await session.info()
    assert (restorer_of(info).node_id, restorer_of(info).lost) == ("", False)
    assert info.kv_bytes == before + restorer_of(info).evicted_bytes > before
    assert any("kept here" in reason for reason in info.plan.reasons)

    # It is back: the same session goes on, as one that never lost anything.
    last.signal(signal.SIGCONT)
    await known(client, last)
    assert (await named.generate(MAX_TOKENS).collect()).token_ids == expected
    async with await restored_session(client) as fresh:
        await fresh.append([*history, *expected])
        assert (await fresh.generate(20).collect()).token_ids == late

    # It leaves in order, although a session uses it.
    assert last.stop() == 0
    await session.close()
    await named.close()
