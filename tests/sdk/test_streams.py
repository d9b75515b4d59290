"""Every way to leave a stream ends the work on the node."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

import kakeya
from kakeya import AsyncClient, AsyncSession, Timeouts, Tokens
from tests.support.patience import PATIENCE_SECONDS
from tests.support.scripted_node import ScriptedNode

ENDLESS = 1_000_000


async def leave_by_break(session: AsyncSession) -> None:
    async for _ in session.generate(ENDLESS):
        break


async def leave_by_break_of_ids(session: AsyncSession) -> None:
    async for _ in session.generate(ENDLESS).ids():
        break


async def leave_by_break_while_the_generation_is_held(session: AsyncSession) -> None:
    generation = session.generate(ENDLESS)
    vars(session)["held"] = generation
    async for _ in generation:
        break


async def leave_by_exception(session: AsyncSession) -> None:
    with pytest.raises(ZeroDivisionError):
        async for _ in session.generate(ENDLESS):
            raise ZeroDivisionError


async def leave_by_context_manager(session: AsyncSession) -> None:
    async with session.generate(ENDLESS) as generation:
        blocks = aiter(generation)
        await anext(blocks)
    assert [tokens async for tokens in blocks] == []


async def leave_by_aclose(session: AsyncSession) -> None:
    generation = session.generate(ENDLESS)
    blocks = aiter(generation)
    await anext(blocks)
    await generation.aclose()
    await generation.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(blocks)


async def leave_by_aclosing(session: AsyncSession) -> None:
    async with aclosing(session.generate(ENDLESS)) as generation:
        async for _ in generation:
            break


async def leave_by_garbage(session: AsyncSession) -> None:
    blocks = aiter(session.generate(ENDLESS))
    await anext(blocks)
    cycle: list[object] = [blocks]
    cycle.append(cycle)
    del blocks, cycle
    gc.collect()


async def leave_by_cancelled_task(session: AsyncSession) -> None:
    async def consume() -> None:
        async for tokens in session.generate(ENDLESS):
            arrived.put_nowait(tokens)

    arrived: asyncio.Queue[Tokens] = asyncio.Queue()
    task = asyncio.ensure_future(consume())
    await arrived.get()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def leave_by_closing_the_session(session: AsyncSession) -> None:
    blocks = aiter(session.generate(ENDLESS))
    await anext(blocks)
    vars(session)["held"] = blocks
    await session.close()


async def leave_by_timeout(session: AsyncSession) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await session.generate(ENDLESS).collect()


LEAVINGS = [value for name, value in list(globals().items()) if name.startswith("leave_by")]


@pytest.mark.parametrize("leave", LEAVINGS, ids=lambda leave: leave.__name__)
async def test_leaving_stops_the_node_and_the_session_lives(
    node: ScriptedNode, leave: Callable[[AsyncSession], Awaitable[None]]
) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1])
        await leave(session)
        (stream,) = node.streams
        assert await asyncio.to_thread(stream.cancelled.wait, PATIENCE_SECONDS)
        assert stream.sent < ENDLESS
        if leave is not leave_by_closing_the_session:
            held = session.history
            assert await session.append([9]) == len(held) + 1
            assert node.sessions[session.session_id] == [*held, 9]


async def test_closing_the_client_stops_the_node(node: ScriptedNode) -> None:
    client = AsyncClient(node.address)
    session = await client.create_session("tiny")
    await session.append([1])
    blocks = aiter(session.generate(ENDLESS))
    await anext(blocks)
    await client.close()
    assert await asyncio.to_thread(node.streams[0].cancelled.wait, PATIENCE_SECONDS)
    with pytest.raises(kakeya.ClientClosed):
        await session.append([1])


async def test_closing_the_client_is_no_cancellation_of_the_reader(node: ScriptedNode) -> None:
    node.silent_after = 0
    client = AsyncClient(node.address)
    session = await client.create_session("tiny")
    await session.append([1])
    reader = asyncio.ensure_future(session.generate(8).collect())
    while not node.streams:
        await client.fleet.node()
    await client.close()
    with pytest.raises(kakeya.ClientClosed):
        await reader


async def test_what_committed_unseen_is_rewound(
    node: ScriptedNode, token_at: Callable[[int], int]
) -> None:
    node.commits_on_cancel = 3
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1])
        async for _ in session.generate(ENDLESS):
            break
        assert await asyncio.to_thread(node.streams[0].cancelled.wait, PATIENCE_SECONDS)
        assert len(node.sessions[session.session_id]) > 5
        assert session.history == (1, *(token_at(i) for i in range(1, 5)))
        # An append goes on from what arrived, a generation too.
        assert await session.append([8]) == 6
        async for _ in session.generate(ENDLESS):
            break
        assert await asyncio.to_thread(node.streams[1].cancelled.wait, PATIENCE_SECONDS)
        completion = await session.generate(2).collect()
        assert completion.done.history_length == 12
        assert node.sessions[session.session_id] == list(session.history)
        assert len(node.sessions) == 1


async def test_a_generation_is_sent_when_it_is_iterated_and_once(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1])
        generation = session.generate(4)
        await client.fleet.node()
        assert not node.requests["Generate"]
        await generation.collect()
        with pytest.raises(kakeya.StreamConsumed):
            await generation.collect()
        closed = session.generate(4)
        await closed.aclose()
        with pytest.raises(kakeya.StreamConsumed):
            aiter(closed)
        assert len(node.requests["Generate"]) == 1


async def test_one_operation_at_a_time(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1])
        async with session.generate(ENDLESS) as generation:
            async for _ in generation:
                with pytest.raises(kakeya.SessionBusy):
                    await session.append([1])
                with pytest.raises(kakeya.SessionBusy):
                    await session.generate(1).collect()
                with pytest.raises(kakeya.SessionBusy):
                    await session.rewind()
                break
        await session.append([1])


async def test_concurrent_appends_of_one_session_take_turns(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await asyncio.gather(*(session.append([index]) for index in range(20)))
        assert node.sessions[session.session_id] == list(session.history) == list(range(20))


async def test_a_silent_node_ends_the_stream_and_is_told(node: ScriptedNode) -> None:
    node.silent_after = 1
    timeouts = Timeouts(stream_idle=1.0)
    async with AsyncClient(node.address, timeouts=timeouts) as client:
        session = await client.create_session("tiny")
        await session.append([1])
        received = []
        with pytest.raises(kakeya.DeadlineExceeded):
            async for tokens in session.generate(ENDLESS):
                received.append(tokens)  # noqa: PERF401 - what came before the error counts
        assert len(received) == 1
        assert await asyncio.to_thread(node.streams[0].cancelled.wait, PATIENCE_SECONDS)
        assert await session.append([2]) == 6


def test_no_tasks_are_left(threaded_node: ScriptedNode) -> None:
    threaded_node.fleet_events.clear()

    async def use() -> None:
        async with AsyncClient(threaded_node.address) as client:
            session = await client.create_session("tiny")
            await session.append([1])
            for _ in range(3):
                async for _tokens in session.generate(ENDLESS):
                    break
            await session.generate(5).collect()
            async with client.fleet.watch() as watch:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(aiter(watch)), 0.2)
        # What is left must end by itself; the test's time limit catches what does not.
        await asyncio.gather(
            *(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True
        )

    asyncio.run(use())
