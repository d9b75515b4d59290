"""Memory of sessions that ended goes back to the machine."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kakeya_fleet.engine.memory import system_memory
from tests.support import calls
from tests.support.neighbourhood import SETTINGS, Neighbourhood


async def test_what_no_session_takes_again_is_given_back(
    neighbourhood: Neighbourhood, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, given_back = asyncio.get_running_loop(), asyncio.Event()
    monkeypatch.setattr(
        system_memory, "give_back", lambda: loop.call_soon_threadsafe(given_back.set)
    )
    settings = replace(SETTINGS, sweep_seconds=0.01, spare_seconds=0.01)
    node = await neighbourhood.start("sparing", f"verifier={checkpoint}", settings=settings)
    sweeping = asyncio.create_task(node.roles.run())
    # What the check of exactness took, before the first session.
    await given_back.wait()
    given_back.clear()
    client = calls.Caller(node.channel)
    session = await client.open(window=64)
    await client.append(session, range(40))
    assert not given_back.is_set(), "a session has it"
    await client.close(session)
    await given_back.wait()
    assert node.roles.load_numbers().kv_bytes == 0
    sweeping.cancel()
    with suppress(asyncio.CancelledError):
        await sweeping
    await node.stop()
