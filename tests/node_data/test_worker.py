"""The model's thread: order, turns, cancellation, shutdown."""

from __future__ import annotations

import asyncio
import threading

import pytest

from node.sessions.worker import ModelWorker, WorkerClosed


@pytest.fixture
async def worker():
    worker = ModelWorker("test")
    yield worker
    await worker.close()


async def test_steps_run_in_order_in_one_thread(worker):
    ran = []

    def step(index):
        ran.append((index, threading.get_ident()))
        return index

    results = await asyncio.gather(*(worker.run(lambda i=i: step(i)) for i in range(50)))
    assert results == list(range(50))
    assert [index for index, _ in ran] == list(range(50))
    assert {thread for _, thread in ran} != {threading.get_ident()}
    assert len({thread for _, thread in ran}) == 1


async def test_two_that_submit_step_by_step_take_turns(worker):
    ran = []

    async def steps(name):
        for _ in range(20):
            await worker.run(lambda: ran.append(name))

    await asyncio.gather(steps("a"), steps("b"))
    longest = max(
        len(run) for run in "".join(ran).replace("ab", "a b").replace("ba", "b a").split()
    )
    assert longest <= 2


async def test_an_error_reaches_the_caller_and_not_the_thread(worker):
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0)
    assert await worker.run(lambda: 7) == 7


async def test_a_waiting_step_is_taken_back(worker):
    gate, ran = threading.Event(), []
    first = asyncio.create_task(worker.run(gate.wait))
    second = asyncio.create_task(worker.run(lambda: ran.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.set()
    await first
    await worker.run(lambda: ran.append("third"))
    assert ran == ["third"]


async def test_a_step_that_began_is_waited_for(worker):
    began, gate, ran = threading.Event(), threading.Event(), []

    def step():
        began.set()
        gate.wait()
        ran.append("done")

    task = asyncio.create_task(worker.run(step))
    await asyncio.to_thread(began.wait)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ran == ["done"]


async def test_closing_lets_the_running_step_end_and_refuses_the_others():
    worker = ModelWorker("closing")
    began, gate = threading.Event(), threading.Event()

    def step():
        began.set()
        return gate.wait()

    running = asyncio.create_task(worker.run(step))
    await asyncio.to_thread(began.wait)
    waiting = asyncio.create_task(worker.run(lambda: 1))
    await asyncio.sleep(0)
    closing = asyncio.create_task(worker.close())
    await asyncio.sleep(0)
    gate.set()
    await closing
    assert await running is True
    with pytest.raises(WorkerClosed):
        await waiting
    with pytest.raises(WorkerClosed):
        await worker.run(lambda: 1)
    await worker.close()
