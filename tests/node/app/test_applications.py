"""Applications with a key, on machines that are no members: what they reach and what not."""

from __future__ import annotations

import asyncio

import pytest

from kakeya import (
    KeyExpired,
    KeyRevoked,
    KeyUnknown,
    ModelServedElsewhere,
    SessionNotFound,
    SessionOptions,
)
from kakeya.v1 import runtime_pb2, trust_pb2
from tests.node.conftest import Eventually, RunningAgent
from tests.support.homes import Home, keys_of, local
from tests.support.patience import PATIENCE_SECONDS

PROMPT = tuple(range(300, 320))
OPENED: SessionOptions = {
    "tokens": PROMPT,
    "speculation": "off",
    "kv_strategy": "sink_window",
}


@pytest.fixture
async def server(home: Home) -> RunningAgent:
    """A member that serves the model; the keeper's node does not."""
    home.let_in("b")
    return await home.start("b", serve=["verifier=tiny"])


async def knows(home: Home, agent: RunningAgent, eventually: Eventually) -> None:
    """Until the keeper's node knows what the other serves."""

    async def is_there() -> bool:
        async with local(home.a) as client:
            nodes = await client.fleet.nodes()
        return any(each.node_id == agent.node_id and each.models for each in nodes)

    await eventually(is_there)


async def test_a_key_made_at_one_node_generates_at_another_and_sees_its_own_sessions_alone(
    home: Home, server: RunningAgent, eventually: Eventually
) -> None:
    await knows(home, server, eventually)
    one, other = await home.key("one"), await home.key("other")
    watcher = await home.key("watcher", scopes=[trust_pb2.KEY_SCOPE_OBSERVE])

    async def is_known() -> bool:
        return len(keys_of(server)) == 3

    await eventually(is_known)
    # The keeper's node names the one that serves the model, at the port for applications.
    async with (
        home.application(one) as client,
        home.application(other, server) as stranger,
        home.application(watcher, server) as observer,
        local(server) as program,
    ):
        session = await client.create_session("tiny", **OPENED)
        assert session.address == str(server.ready["applications_address"])
        assert len((await session.generate(8).collect()).token_ids) == 8
        for others in (stranger, program):
            assert [each async for each in others.sessions()] == []
        # Who observes knows that it is there, and how long it is; no more of it.
        assert [each.history_length async for each in observer.sessions()] == [len(PROMPT) + 8]
        fork = runtime_pb2.ForkSessionRequest(session_id=session.session_id)
        for others in (stranger, program):
            connection = others._home
            with pytest.raises(SessionNotFound):
                await connection.unary(connection.runtime.ForkSession, fork, 5)
        own = await stranger.create_session("tiny", **OPENED)
        assert [each.session_id async for each in stranger.sessions()] == [own.session_id]


async def test_a_key_that_is_revoked_ends_in_mid_stream_at_every_node(
    home: Home, server: RunningAgent, eventually: Eventually
) -> None:
    key = await home.key("app")

    async def is_known() -> bool:
        return bool(keys_of(server))

    await eventually(is_known)
    async with home.application(key, server) as client, local(server) as owner:
        session = await client.create_session("tiny", **OPENED)
        generation = session.generate(4000, temperature=1.0, seed=1)
        tokens = 0
        with pytest.raises(KeyRevoked):
            async with asyncio.timeout(PATIENCE_SECONDS), generation:
                async for each in generation:
                    tokens += len(each.token_ids)
                    if tokens == 1:
                        await home.revoke_key("app")
        assert 0 < tokens < 4000
        with pytest.raises(KeyRevoked):
            await client.create_session("tiny")
        assert [each async for each in owner.sessions()] == []


async def test_a_key_ends_when_its_time_is_over_in_mid_stream_too(home: Home) -> None:
    key = await home.key("short", valid_seconds=2.0)
    async with home.application(key) as client:
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(KeyExpired):
                async for _ in client.fleet.watch():
                    pass
        assert keys_of(home.a)
        with pytest.raises(KeyExpired):
            await client.fleet.node()


async def test_a_program_without_tls_follows_to_no_member(
    home: Home, server: RunningAgent, eventually: Eventually
) -> None:
    """In plain text whoever answers there would have the prompt."""
    await knows(home, server, eventually)
    async with local(home.a) as client:
        with pytest.raises(ModelServedElsewhere) as caught:
            await client.create_session("tiny", tokens=PROMPT)
    assert caught.value.address == server.address


async def test_a_key_of_another_fleet_is_none(home: Home) -> None:
    async with home.application("kky_" + "A" * 43) as client:
        with pytest.raises(KeyUnknown):
            await client.fleet.node()


async def test_keys_are_kept_as_digests_alone(home: Home) -> None:
    key = await home.key("app")
    for file in home.folder.rglob("*"):
        if file.is_file():
            assert key.encode() not in file.read_bytes(), file
