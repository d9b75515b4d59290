"""The model's thread: order, turns in shared forwards, cancellation, shutdown."""

from __future__ import annotations

import asyncio
import gc
import math
import random
import threading
import time
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import DraftSource
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.errors import EmptyHistory, SessionNotFound
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.proposers.ngram import NgramProposer
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.decoding import DecodeTurn, Decoding
from kakeya_fleet.engine.sessions.gathering import Gathering
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import (
    Block,
    PrefillTurn,
    Turn,
    VerifyTurn,
)
from kakeya_fleet.engine.speculation.generation_report import Done
from kakeya_fleet.node.roles.worker import (
    MOST_GATHER_SECONDS,
    TELLINGS_A_SECOND,
    ModelWorker,
    WorkerClosed,
    functions_seconds,
)
from kakeya_fleet.node.rpc.refusals import WorkerFault
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.patience import PATIENCE_SECONDS


class Held(frozenset[int]):
    """What can be referred to weakly."""


@pytest.fixture
async def worker() -> AsyncIterator[ModelWorker]:
    worker = ModelWorker("test")
    yield worker
    await worker.close()


async def test_steps_run_in_order_in_one_thread(worker: ModelWorker) -> None:
    ran: list[tuple[int, int]] = []

    def step(index: int) -> int:
        ran.append((index, threading.get_ident()))
        return index

    results = await asyncio.gather(*(worker.run(partial(step, index)) for index in range(50)))
    assert results == list(range(50))
    assert [index for index, _ in ran] == list(range(50))
    assert {thread for _, thread in ran} != {threading.get_ident()}
    assert len({thread for _, thread in ran}) == 1


async def test_an_error_reaches_the_caller_and_not_the_thread(worker: ModelWorker) -> None:
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0)
    assert await worker.run(lambda: 7) == 7


async def test_what_the_caller_of_a_failed_step_held_is_free_without_the_collector(
    worker: ModelWorker,
) -> None:
    """A closed session's step fails: its history would wait for a collection."""

    async def call() -> weakref.ref[Held]:
        held = Held((1, 2, 3))

        def fail() -> None:
            raise EmptyHistory(f"of {len(held)}")

        with suppress(EmptyHistory):
            await worker.run(fail)
        return weakref.ref(held)

    gc.disable()
    try:
        held = await call()
        # The thread lets go of the step once it has told of its end.
        await worker.run(int)
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "fault", [SystemExit(3), StopIteration(), asyncio.CancelledError(), GeneratorExit()], ids=repr
)
async def test_what_would_befall_others_is_an_error_of_the_step(
    worker: ModelWorker, fault: BaseException
) -> None:
    def step() -> None:
        raise fault

    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(RuntimeError, match=type(fault).__name__) as raised:
            await worker.run(step)
    assert raised.value.__cause__ is fault
    assert await worker.run(lambda: 7) == 7


async def test_a_fault_of_the_thread_itself_ends_what_waits_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[tuple[str, str, int]] = []
    worker = ModelWorker("faulty", lambda *told: heard.append((told[0], str(told[1]), told[2])))
    verifier = hashing.HashVerifier()
    holding, gate, tasks = await while_busy(worker, *(PrefillTurn(opened(verifier)) for _ in "ab"))
    withdrawn = asyncio.create_task(worker.run(lambda: 1))
    waiting = asyncio.create_task(worker.run(lambda: 1))
    await asyncio.sleep(0)
    withdrawn.cancel()
    receive, left = worker._receive, 3

    def broken() -> None:
        nonlocal left
        receive()
        left -= 1
        if left >= 0:
            raise SystemExit("the thread's own")

    monkeypatch.setattr(worker, "_receive", broken)
    gate.set()
    await holding
    async with asyncio.timeout(PATIENCE_SECONDS):
        ends = await asyncio.gather(waiting, *tasks, return_exceptions=True)
        # One that comes is told of the next fault, until there is none.
        while left > 0:
            with pytest.raises(WorkerFault):
                await worker.run(lambda: 1)
        assert await worker.run(lambda: 7) == 7
        assert await worker.run_turn(PrefillTurn(opened(verifier)))
    assert [type(end) for end in ends] == [WorkerFault] * 3
    assert len({id(end) for end in ends}) == 3
    assert withdrawn.cancelled()
    sentence = "it raised SystemExit: the thread's own"
    assert heard == [("faulty", sentence, count) for count in (1, 2, 3)]
    await worker.close()


async def test_a_worker_whose_thread_always_fails_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = ModelWorker("lost")

    def broken() -> None:
        raise ZeroDivisionError

    # It waits for a step in what is replaced here.
    monkeypatch.setattr(worker, "_receive", broken)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await worker.run(lambda: 7) == 7
        waiting = asyncio.create_task(worker.run(lambda: 1))
        await asyncio.sleep(0)
        await worker.close()
        with pytest.raises(WorkerClosed):
            await waiting


async def test_a_waiting_step_is_taken_back(worker: ModelWorker) -> None:
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


async def test_a_step_that_began_is_waited_for(worker: ModelWorker) -> None:
    began, gate, ran = threading.Event(), threading.Event(), []

    def step() -> None:
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


async def test_closing_lets_the_running_step_end_and_refuses_the_others() -> None:
    worker = ModelWorker("closing")
    began, gate = threading.Event(), threading.Event()

    def step() -> bool:
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


WINDOWED = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=9)
PROMPT = [(3 * index * index) % 48 for index in range(30)]


def opened(
    verifier: hashing.HashVerifier, prompt: Sequence[int] = PROMPT, spec: CacheSpec = WINDOWED
) -> Session:
    session = Session(verifier, verifier.allocate(spec))
    session.append(prompt)
    return session


def computed(
    prompt: Sequence[int] = PROMPT, verifier: hashing.HashVerifier | None = None
) -> Session:
    """A session whose next token can be decided."""
    session = opened(verifier or hashing.HashVerifier(), prompt)
    while PrefillTurn(session)():
        pass
    return session


async def until_longer(session: Session, length: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(session.history) < length:  # noqa: ASYNC110 a history wakes nobody
            await asyncio.sleep(0)


def verifying(session: Session) -> VerifyTurn:
    return VerifyTurn(session, Block((), GREEDY, 1), time.monotonic)


async def while_busy(
    worker: ModelWorker, *turns: Turn[Any]
) -> tuple[asyncio.Task[None], threading.Event, list[asyncio.Task[Any]]]:
    """Submits turns while the thread is held up; the tasks, when all wait."""
    gate, began = threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        gate.wait()

    holding = asyncio.create_task(worker.run(hold))
    await asyncio.to_thread(began.wait)
    tasks = [asyncio.create_task(worker.run_turn(turn)) for turn in turns]
    await asyncio.sleep(0)
    return holding, gate, tasks


async def test_turns_that_wait_share_a_forward(worker: ModelWorker) -> None:
    verifier = hashing.HashVerifier()
    sessions = [opened(verifier, [number]) for number in range(5)]
    holding, gate, tasks = await while_busy(worker, *map(verifying, sessions))
    gate.set()
    await holding
    verified = await asyncio.gather(*tasks)
    assert list(verifier.batches) == [(1,) * 5]
    for number, one in enumerate(verified):
        expected = hashing.expected_stream([number], WINDOWED, 1, GREEDY)
        assert list(one.step.committed) == expected


async def test_a_waiting_turn_is_taken_back_at_once(worker: ModelWorker) -> None:
    verifier = hashing.HashVerifier()
    sessions = [opened(verifier, [number]) for number in range(3)]
    holding, gate, tasks = await while_busy(worker, *map(verifying, sessions))
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    assert not holding.done()
    gate.set()
    await asyncio.gather(holding, tasks[0], tasks[2])
    assert list(verifier.batches) == [(1, 1)]
    assert sessions[1].history[:] == [1]
    assert (await worker.run_turn(verifying(sessions[1]))).step.first_index == 1


async def test_a_turn_that_began_is_waited_for(
    worker: ModelWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = hashing.HashVerifier()
    sessions = [opened(verifier, [number]) for number in range(2)]
    began, gate, honest = threading.Event(), threading.Event(), verifier.forward_batch

    def forward_batch(feeds: Sequence[Feed]) -> list[Output]:
        began.set()
        gate.wait()
        return honest(feeds)

    monkeypatch.setattr(verifier, "forward_batch", forward_batch)
    holding, free, tasks = await while_busy(worker, *map(verifying, sessions))
    free.set()
    await holding
    await asyncio.to_thread(began.wait)
    tasks[0].cancel()
    await asyncio.sleep(0)
    assert not tasks[0].done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    await tasks[1]
    assert [len(session.history) for session in sessions] == [2, 2]


ENDLESS = Block((), GREEDY, 1 << 20)
"""More tokens than a test has time for, however slow its event loop is."""


async def test_a_turn_that_goes_on_takes_its_forwards_beside_the_others(
    worker: ModelWorker,
) -> None:
    """Neither turns nor functions wait for its end."""
    verifier = hashing.HashVerifier(context_length=1 << 21)
    long, short = computed(verifier=verifier), computed(PROMPT[:9], verifier)
    asked = asyncio.create_task(worker.run_turn(DecodeTurn(long, ENDLESS)))
    await until_longer(long, len(PROMPT) + 1)
    for count in range(1, 4):
        (verified,) = (await worker.run_turn(DecodeTurn(short, Block((), GREEDY, 1)))).steps
        assert verified.step.first_index == 8 + count
        assert await worker.run(lambda: 7) == 7
    assert not asked.done()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert worker.gather_seconds() == 1 / TELLINGS_A_SECOND


async def test_a_turn_that_goes_on_ends_with_the_forward_in_which_its_caller_left(
    worker: ModelWorker,
) -> None:
    session = computed(verifier=hashing.HashVerifier(context_length=1 << 21))
    asked = asyncio.create_task(worker.run_turn(DecodeTurn(session, ENDLESS)))
    await until_longer(session, len(PROMPT) + 3)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    left = len(session.history)
    # Nothing of it runs any more: whoever comes next has the session to himself.
    again = await worker.run_turn(DecodeTurn(session, Block((), GREEDY, 3)))
    assert [step.step.first_index for step in again.steps] == [left, left + 1, left + 2]
    expected = hashing.expected_stream(PROMPT, WINDOWED, 100, GREEDY)
    assert session.history[len(PROMPT) :][:100] == expected[: left + 3 - len(PROMPT)]


async def test_what_a_decoding_held_that_failed_is_free_without_the_collector(
    worker: ModelWorker,
) -> None:
    """Behind tokens that it told: a closed session's."""
    session = computed(verifier=hashing.HashVerifier(context_length=1 << 21))
    gone = weakref.ref(session)
    gc.disable()
    try:
        decoding = Decoding(
            worker.run_turn,
            session,
            ENDLESS,
            time.monotonic,
            lambda: 1e-9,
            at_once=True,
            until=math.inf,
        )
        await decoding.take()
        session.end("closed")
        with suppress(SessionNotFound):
            while not decoding.is_over:
                await decoding.take()
        assert decoding.is_over
        del session, decoding
        # The thread lets go of the turn once it has told of its end.
        await worker.run(int)
        assert gone() is None
    finally:
        gc.enable()


async def test_closing_ends_a_turn_that_goes_on() -> None:
    worker = ModelWorker("test")
    session = computed(verifier=hashing.HashVerifier(context_length=1 << 21))
    asked = asyncio.create_task(worker.run_turn(DecodeTurn(session, ENDLESS)))
    await until_longer(session, len(PROMPT) + 3)
    await worker.close()
    with pytest.raises(WorkerClosed):
        await asked


def test_many_sessions_wait_longer_to_be_told_together(worker: ModelWorker) -> None:
    worker._turn_steps = cast(Any, dict.fromkeys(range(24)))
    assert worker.gather_seconds() == 24 / TELLINGS_A_SECOND
    worker._turn_steps = cast(Any, dict.fromkeys(range(900)))
    assert worker.gather_seconds() == MOST_GATHER_SECONDS
    worker._turn_steps = {}


class Patient(Gathering):
    """Always waits for more."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Event()

    def linger_seconds(self, _now: object) -> float:
        self.waits.set()
        return 5.0


async def test_closing_refuses_what_came_while_it_waited_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gathering = Patient()
    monkeypatch.setattr("kakeya_fleet.node.roles.worker.Gathering", lambda: gathering)
    worker = ModelWorker("closing")
    turns = [PrefillTurn(opened(hashing.HashVerifier())) for _ in range(4)]
    tasks = [asyncio.create_task(worker.run_turn(turns[0]))]
    await asyncio.to_thread(gathering.waits.wait)
    tasks += [asyncio.create_task(worker.run_turn(turn)) for turn in turns[1:]]
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(asyncio.sleep(0), worker.close())
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [WorkerClosed] * 4


async def test_who_asked_in_time_is_not_late_because_the_thread_was_busy(
    worker: ModelWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(
        "kakeya_fleet.node.roles.worker.time", SimpleNamespace(monotonic=lambda: clock.now)
    )
    session = opened(hashing.HashVerifier())
    await worker.run_turn(PrefillTurn(session))
    holding, gate, (asked,) = await while_busy(worker, PrefillTurn(session))
    clock.now += 30.0
    gate.set()
    await asyncio.gather(holding, asked)
    assert not worker._gathering._late


async def test_functions_and_batches_share_the_time(
    worker: ModelWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that are opened do not wait for a batch of all that generate, each of them."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(
        "kakeya_fleet.node.roles.worker.time", SimpleNamespace(monotonic=lambda: clock.now)
    )
    ran: list[str] = []
    verifier = hashing.HashVerifier()
    honest = verifier.forward_batch

    def passes(what: str, seconds: float) -> None:
        ran.append(what)
        clock.now += seconds

    def forward_batch(feeds: Sequence[Feed]) -> list[Output]:
        passes("batch", 10.0)
        return honest(feeds)

    monkeypatch.setattr(verifier, "forward_batch", forward_batch)
    rows = next(count for count in verifier.row_counts if count >= verifier.info.width)
    verifier.use_row_counts((rows,))
    sessions = [opened(verifier, [number]) for number in range(2 * rows)]
    holding, gate, turns = await while_busy(worker, *map(verifying, sessions))
    functions = [
        asyncio.create_task(worker.run(partial(passes, "function", 1.0))) for _ in range(25)
    ]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(holding, *turns, *functions)
    assert ran == ["function", *["batch", *["function"] * 10], "batch", *["function"] * 14]


async def test_sessions_that_generate_at_once_are_those_sessions_alone(worker: ModelWorker) -> None:
    """They share forwards, some draft, some are left in the middle, some end within a forward."""
    verifier = hashing.HashVerifier()

    async def one(number: int) -> bool:
        rng = random.Random(number)
        spec = CacheSpec(CacheKind.SINK_WINDOW, sink=number % 3, window=5 + number)
        if number % 4 == 3:
            spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=400)
        sampling = SamplingParameters(temperature=0.4 * (number % 2), seed=number)
        prompt = rng.choices(range(48), k=40 + 9 * number)
        expected = hashing.expected_stream(prompt, spec, 40, sampling)
        source = [
            None,
            LocalDraftSource(NgramProposer()),
            sources.OracleSource([*prompt, *expected], hashing.VOCABULARY),
            sources.ChaoticSource([*prompt, *expected], hashing.VOCABULARY, seed=number),
        ][number % 4]
        session = opened(verifier, prompt, spec)
        if number % 5 == 4:
            task = asyncio.create_task(collect(session, source, 40, sampling))
            await worker.run(lambda: None)
            while len(session.history) < len(prompt) + 5:
                await worker.run(lambda: None)
            task.cancel()
            await asyncio.wait({task})
        done = len(session.history) - len(prompt)
        forked = await worker.run(session.fork)
        if done < 40:
            await collect(session, source, 40 - done, sampling)
            await collect(forked, None, 40 - done, sampling)
        same = session.history[:] == forked.history[:] == [*prompt, *expected]
        session.end("closed")
        forked.end("closed")
        return same

    async def collect(
        session: Session, source: DraftSource | None, count: int, sampling: SamplingParameters
    ) -> tuple[list[int], Done]:
        asked = streams.parameters(count, sampling=sampling, block_size=4)
        return await streams.collect(session, source, asked, run=worker.run_turn)

    assert await asyncio.gather(*map(one, range(10))) == [True] * 10
    assert max(map(len, verifier.batches)) > 4
    assert verifier.pool.used_bytes == 0


def test_functions_hold_up_short_batches_little_and_long_ones_for_as_long() -> None:
    """A crowd that opens sessions; see `functions_seconds`."""
    assert functions_seconds(0.0) == 0.0
    assert functions_seconds(0.01) < 0.002
    assert 0.6 < functions_seconds(0.1) / 0.1 < 1.0
