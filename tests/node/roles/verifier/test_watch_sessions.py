"""WatchSessions over a real server: what sessions do, never which tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Self

import grpc
import pytest

from kakeya.v1 import runtime_pb2 as wire
from kakeya_fleet.node.roles.settings import SessionWatchSettings
from kakeya_fleet.node.roles.verifier.session_watch import SESSION_QUEUE
from tests.node.conftest import next_message
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 7 % 96 for index in range(40)]


Condition = Callable[[wire.SessionActivity], bool]


class Watch:
    """One watch, and what it told."""

    def __init__(self, client: calls.Caller, block_count: int = 0) -> None:
        request = wire.WatchSessionsRequest(block_count=block_count)
        self._call = client.stub.WatchSessions(request)

    async def __aenter__(self) -> Self:
        first = await next_message(self._call)
        assert first.WhichOneof("kind") == "snapshot"
        self.snapshot = {each.session.session_id: each for each in first.snapshot.sessions}
        return self

    async def __aexit__(self, *_: object) -> None:
        self._call.cancel()

    async def until(self, session_id: str, condition: Condition) -> list[wire.SessionActivity]:
        """What is told of the session up to the first that fulfils the condition."""
        told: list[wire.SessionActivity] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                message = await next_message(self._call)
                if message.WhichOneof("kind") == "ended":
                    assert message.ended.session_id != session_id, "the session ended"
                elif message.changed.session.session_id == session_id:
                    told.append(message.changed)
                    if condition(message.changed):
                        return told

    async def until_ended(self, session_id: str) -> wire.EndedSession:
        """How the session ended."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                message = await next_message(self._call)
                if message.ended.session_id == session_id:
                    return message.ended


def finished(body: wire.SessionActivity) -> bool:
    return body.stop_reason != wire.STOP_REASON_UNSPECIFIED and (
        body.session.state == wire.SESSION_STATE_IDLE
    )


async def test_a_generation_is_told_block_by_block(
    client: calls.Caller, proposer: nodes.Node
) -> None:
    async with Watch(client) as watch:
        session = await client.open(
            mode=wire.SPECULATION_MODE_FIXED,
            proposer="ngram",
            proposer_node=proposer.node_id,
            block_size=4,
        )
        await client.append(session, PROMPT)
        first = await client.generate(session, 40)
        told = await watch.until(session, finished)
        blocks = [block for body in told for block in body.blocks]
        last = told[-1]
        assert [block.generation_number for block in blocks] == [1] * len(blocks)
        assert [
            (block.first_index, block.drafted_count, block.accepted_count, block.committed_count)
            for block in blocks
        ] == [
            (block.first_index, block.drafted_count, block.accepted_count, block.committed_count)
            for block in first.done.timeline
        ]
        assert sum(block.committed_count for block in blocks) == 40
        assert (last.generation_count, last.generated_token_count) == (1, 40)
        assert last.drafted_count == first.done.speculation.drafted_count
        assert last.accepted_count == first.done.speculation.accepted_count
        assert last.verify_forward_count == first.done.speculation.verify_forward_count
        assert last.prefilled_token_count == len(PROMPT) - 1
        assert last.prefill_seconds > 0
        assert last.verify_seconds == pytest.approx(sum(b.verify_seconds for b in blocks))
        assert last.stop_reason == wire.STOP_REASON_MAX_TOKENS
        assert last.tokens_per_second > 0
        assert last.session.history_length == len(PROMPT) + 40

        await client.generate(session, 10)
        told = await watch.until(session, lambda body: body.generated_token_count == 50)
        assert {block.generation_number for body in told for block in body.blocks} <= {2}
        await client.close(session)
        end = await watch.until_ended(session)
        assert end.outcome == wire.SESSION_OUTCOME_CLOSED


async def test_what_is_over_is_told_idle_although_its_end_was_told_within_its_turn(
    neighbourhood: nodes.Neighbourhood, checkpoint: Path
) -> None:
    settings = replace(nodes.SETTINGS, watch=SessionWatchSettings(least_seconds=0.0))
    node = await neighbourhood.start("at-once", f"verifier={checkpoint}", settings=settings)
    client = calls.Caller(node.channel)

    def rests_at(length: int) -> Condition:
        return lambda body: (
            body.session.history_length == length and body.session.state == wire.SESSION_STATE_IDLE
        )

    async with Watch(client) as watch:
        session = await client.open()
        await client.append(session, PROMPT)
        await watch.until(session, rests_at(len(PROMPT)))
        for count in (1, 2, 3):
            await client.generate(session, 5)
            await watch.until(session, rests_at(len(PROMPT) + 5 * count))
        await client.close(session)


async def test_the_snapshot_has_the_latest_blocks_and_later_ones_come_once(
    client: calls.Caller,
) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    await client.generate(session, 30)
    async with Watch(client, block_count=5) as watch, Watch(client) as all_blocks:
        assert len(watch.snapshot[session].blocks) == 5
        assert len(all_blocks.snapshot[session].blocks) == 30
        assert [block.first_index for block in watch.snapshot[session].blocks] == list(
            range(len(PROMPT) + 25, len(PROMPT) + 30)
        )
        await client.generate(session, 7)
        for each in (watch, all_blocks):
            told = await each.until(session, lambda body: body.generated_token_count == 37)
            told += await each.until(session, finished) if not finished(told[-1]) else []
            indexes = [block.first_index for body in told for block in body.blocks]
            assert indexes == list(range(len(PROMPT) + 30, len(PROMPT) + 37))
    await client.close(session)


async def test_a_client_that_leaves_and_an_eviction_are_told(
    client: calls.Caller, verifier: nodes.Node
) -> None:
    async with Watch(client) as watch:
        session = await client.open()
        await client.append(session, PROMPT)
        call = client.stub.Generate(
            wire.GenerateRequest(session_id=session, max_tokens=4000), timeout=60
        )
        await call.read()
        call.cancel()
        left = await watch.until(
            session,
            lambda body: (
                body.generation_count == 1 and body.session.state == wire.SESSION_STATE_IDLE
            ),
        )
        assert left[-1].stop_reason == wire.STOP_REASON_UNSPECIFIED
        verifier.roles.sessions.sweep(float("inf"))
        end = await watch.until_ended(session)
        assert end.outcome == wire.SESSION_OUTCOME_EVICTED


async def test_no_session_is_told_of_more_than_ten_times_a_second(client: calls.Caller) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    loop = asyncio.get_running_loop()
    async with Watch(client) as watch:
        began = loop.time()
        await client.generate(session, 200)
        told = await watch.until(session, lambda body: body.generated_token_count == 200)
        seconds = loop.time() - began
        assert len(told) <= 10 * seconds + 2
        assert sum(len(body.blocks) for body in told) <= 200
    await client.close(session)


async def test_too_many_blocks_are_refused(client: calls.Caller) -> None:
    told = await client.refusal("WatchSessions", wire.WatchSessionsRequest(block_count=257))
    assert (told.code, told.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST")


async def test_a_node_without_a_verifier_has_no_sessions(proposer: nodes.Node) -> None:
    async with Watch(calls.Caller(proposer.channel)) as watch:
        assert watch.snapshot == {}


async def test_leaving_tells_the_sessions_as_drained_and_a_slow_watcher_is_dropped(
    neighbourhood: nodes.Neighbourhood, checkpoint: Path
) -> None:
    node = await neighbourhood.start("leaving", f"verifier={checkpoint}")
    caller = calls.Caller(node.channel)
    watch = node.roles.verifier.session_watch
    session = await caller.open()
    with watch.watcher() as slow:
        opened = node.roles.verifier.session_watch._activities[session]
        for _ in range(SESSION_QUEUE + 1):
            watch._publish(opened.session.session_id)
        assert slow.too_slow
    async with Watch(caller) as watching:
        assert set(watching.snapshot) == {session}
        await node.roles.drain(0.1)
        watch.close()
        end = (await next_message(watching._call)).ended
        assert end.session_id == session
        assert end.outcome == wire.SESSION_OUTCOME_DRAINED
