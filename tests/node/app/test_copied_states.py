"""Two agents of one state directory: the copy ends, and the one that was there first goes on."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kakeya import AsyncClient, AsyncSession
from kakeya_fleet.fleet.membership.clone_watch import SURE_PERIODS
from kakeya_fleet.node.cli.shell.failure import ExitCode
from kakeya_fleet.node.config.machine import seconds_since_boot
from tests.node.conftest import AgentProcess, SpawnAgent, StartAgent
from tests.support.breadth import wide
from tests.support.calls import until
from tests.support.members import first_keeper, member
from tests.support.patience import PATIENCE_SECONDS

PERIOD = 0.1


async def has_run_for_long() -> None:
    """A node that has begun before is surely older than one that begins afterwards."""
    began = seconds_since_boot()
    await until(lambda: seconds_since_boot() - began > 2 * SURE_PERIODS * PERIOD)


async def ended_by_name(copy: AgentProcess) -> str:
    """The error with which the copy ends."""
    assert await copy.ended() == ExitCode.FLEET_ERROR
    (error,) = (event["error"] for event in copy.events.said if "error" in event)
    assert error["reason"] == "CLONE_YIELDS"
    return str(error["message"])


async def goes_on(session: AsyncSession, stop: asyncio.Event) -> int:
    """Answers of the session, one after the other, until it is stopped; how many there were."""
    count = 0
    while not stop.is_set():
        answer = await session.generate(4).collect()
        assert len(answer.token_ids) == 4
        count += 1
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await stop.wait()
    return count


async def test_the_copy_of_a_state_that_is_used_ends_and_the_first_ones_sessions_go_on(
    spawn_agent: SpawnAgent,
    start_agent: StartAgent,
    tmp_path: Path,
    random_checkpoint: Callable[..., Path],
) -> None:
    witness = await start_agent("w", period_seconds=PERIOD)
    flags = {"period_seconds": PERIOD, "peers": [witness.address]}
    first = await start_agent("a", serve=[f"verifier={random_checkpoint()}"], **flags)
    (model,) = (each["model_id"] for each in first.ready["models"])
    await has_run_for_long()
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    stop = asyncio.Event()
    async with (
        AsyncClient(first.address) as client,
        await client.create_session(
            model, speculation="off", kv_strategy="sink_window", sink_tokens=4, window_tokens=16
        ) as session,
    ):
        await session.append((3, 1, 4, 1, 5))
        answers = asyncio.ensure_future(goes_on(session, stop))
        # It begins above what the first one announces: the counter was copied as well.
        copy = await spawn_agent("b", state=str(tmp_path / "copy"), until_ready=False, **flags)
        message = await ended_by_name(copy)
        stop.set()
        assert await answers > 0
    assert "remove the state directory of the copy" in message
    assert not first.task.done()


@pytest.mark.parametrize("is_suspended", [wide(False), True], ids=["running", "suspended"])
async def test_the_copy_of_a_member_ends_also_when_the_first_one_was_suspended(
    spawn_agent: SpawnAgent,
    start_agent: StartAgent,
    tmp_path: Path,
    fleet_name: str,
    is_suspended: bool,
) -> None:
    keeper = first_keeper(tmp_path / "w", fleet_name)
    member(tmp_path / "a", keeper)
    here = {"bind": "127.0.0.1:0", "period_seconds": PERIOD}
    witness = await start_agent("w", **here)
    first = await spawn_agent("a", peers=[witness.address], **here)
    await witness.events.wait_for("peer_joined", node_id=first.node_id)
    await has_run_for_long()
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    if is_suspended:
        first.signal(signal.SIGSTOP)
    copy = await spawn_agent(
        "b", state=str(tmp_path / "copy"), peers=[witness.address], until_ready=False, **here
    )

    def is_known_as(name: str) -> bool:
        known = witness.node.control.known.state(first.node_id)
        return known.card is not None and known.card.name == name

    if is_suspended:
        # Its card may come before the first one is suspected, or after.
        await until(lambda: is_known_as("b"), PATIENCE_SECONDS)
        first.signal(signal.SIGCONT)
    await ended_by_name(copy)
    assert first.process.poll() is None
    await until(lambda: is_known_as("a"), PATIENCE_SECONDS)
