"""One thread that runs a model's steps, and sessions' turns several at a time."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from kakeya_fleet.engine.contracts.blocking import handed_on, settled
from kakeya_fleet.engine.sessions.gathering import Gathering
from kakeya_fleet.engine.sessions.turn_queue import TurnQueue
from kakeya_fleet.engine.sessions.turns import Ended, Turn, run_turns
from kakeya_fleet.engine.sessions.waiting_time import QueueLoad
from kakeya_fleet.node.config.backoff import Backoff
from kakeya_fleet.node.rpc.refusals import WorkerFault

Result = TypeVar("Result")


TELLINGS_A_SECOND = 250.0
"""Of tokens without drafts, all sessions' together: each takes the event loop about a quarter of a
millisecond, so a sixteenth of its time."""
MOST_GATHER_SECONDS = 0.5
"""People read on."""
SHORT_BATCH_SECONDS = 0.05
"""Of `functions_seconds`."""
AGAIN = Backoff(0.01, 1.0)
"""Pauses of a thread whose own work fails in a row: one that always fails costs no core."""


def functions_seconds(batch_seconds: float) -> float:
    """How long functions run before the next batch, one at least, by what the latest one took.

    b b / (b + `SHORT_BATCH_SECONDS`): a crowd that opens sessions makes a gap of 10 ms between two
    tokens 12, and one of 100 ms 167.
    """
    return batch_seconds * batch_seconds / (batch_seconds + SHORT_BATCH_SECONDS)


class WorkerClosed(RuntimeError):
    """The worker was closed before the step ran."""


OnFault = Callable[[str, Exception, int], None]
"""Hears, in the worker's thread, of its name, the fault, and how many in a row there were.

Raises nothing.
"""


def ignore_faults(_name: str, _error: Exception, _count: int) -> None:
    """Nobody hears of faults."""


class _Step:
    """A step on its way through the worker's thread."""

    __slots__ = ("_taken", "arrive", "ended", "finished", "latest", "loop", "withdrawn")

    def __init__(self, arrive: Callable[[_Step], None], loop: asyncio.AbstractEventLoop) -> None:
        """`arrive` is called in the thread, when it takes note of the step or of its end."""
        self.arrive = arrive
        self.loop = loop
        self._taken = threading.Lock()
        self.finished: asyncio.Future[object] = loop.create_future()
        self.ended = False
        """Whether `finish` was called."""
        self.latest: Ended | None = None
        """What the latest forward of a turn came to that goes on with another."""
        self.withdrawn = False
        """Whether its caller left after it was claimed."""

    @property
    def taken(self) -> bool:
        """Whether it was claimed."""
        return self._taken.locked()

    def take(self) -> bool:
        """Claims the step, to run or to withdraw it; False when another did before."""
        return self._taken.acquire(blocking=False)

    def finish(self, result: object, error: Exception | None) -> None:
        """Tells the task that awaits the step; on the loop's thread."""
        self.ended = True
        if self.finished.done():
            return
        if error is not None:
            self.finished.set_exception(error)
        else:
            self.finished.set_result(result)


class ModelWorker:
    """Runs steps in one thread: functions one at a time, turns in batches.

    Functions run in the order of their calls. `engine.sessions.turns.Turn`s, all of one
    verifier, run as `engine.sessions.turn_queue` chooses among those that wait when the
    thread is free; `engine.sessions.gathering` bounds how long it waits for more.
    A turn that goes on (`Turn.told`) waits for its next forward behind the others, and nobody is
    told before it is over.
    Waiting functions and batches take turns: a function, and others until they have taken
    as long as the batch before them. So each side has half the time while both wait.
    Nothing but this thread touches the verifier and the caches that it allocated.

    A fault between two steps, of the queues and not of a step, ends with `WorkerFault` what the
    thread knew of and had not run; it begins anew with empty queues.
    """

    def __init__(self, name: str, on_fault: OnFault = ignore_faults) -> None:
        self._name = name
        self._on_fault = on_fault
        # Those that the thread took from the inbox or out of a queue, and has not answered.
        self._in_hand: list[_Step] = []
        self._inbox: queue.SimpleQueue[_Step | None] = queue.SimpleQueue()
        self._functions: deque[tuple[_Step, Callable[[], object]]] = deque()
        self._turns = TurnQueue()
        self._gathering = Gathering()
        self._turn_steps: dict[Turn[Any], _Step] = {}
        self._batch_seconds = 0.0
        self._latest = QueueLoad()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def load(self) -> QueueLoad:
        """What waits for the thread now, and how it works through it."""
        return replace(self._latest, waiting_turns=len(self._turn_steps) + self._inbox.qsize())

    def others_wait(self) -> bool:
        """Whether anything waits besides what runs. Its thread may ask."""
        return bool(self._functions or self._turns) or not self._inbox.empty()

    def gather_seconds(self) -> float:
        """How long tokens that nobody drafts may wait to be told together.

        The more sessions there are, the longer, so that all of them together are told of at most
        `TELLINGS_A_SECOND` times a second. Any thread may ask.
        """
        sessions = len(self._turn_steps) + len(self._in_hand) + self._inbox.qsize()
        return min(max(1, sessions) / TELLINGS_A_SECOND, MOST_GATHER_SECONDS)

    async def run(self, function: Callable[[], Result]) -> Result:
        """The result of `function`, run alone in the worker's thread.

        A cancelled caller takes a waiting step back at once; a step that has
        begun is waited for, so that nobody touches its session before it ended.
        Raises what the function raises, `WorkerClosed` and `WorkerFault`.
        """

        def arrive(step: _Step) -> None:
            if not step.taken:
                self._functions.append((step, function))

        return cast(Result, await self._passed(arrive))

    async def run_turn(self, turn: Turn[Result]) -> Result:
        """The result of `turn`, which may share a forward; otherwise as `run`."""
        # Not when the thread takes note of it: that may be a whole batch later.
        asked_at = time.monotonic()

        def arrive(step: _Step) -> None:
            if step.taken:
                self._turns.discard(turn)
                self._turn_steps.pop(turn, None)
                return
            if turn.is_gathered:
                self._gathering.came(id(turn.session), asked_at)
            self._turns.add(turn)
            self._turn_steps[turn] = step

        return cast(Result, await self._passed(arrive))

    async def _passed(self, arrive: Callable[[_Step], None]) -> object:
        """What came of a step that was passed through the thread."""
        if self._closed:
            raise WorkerClosed("the model's worker was closed")
        step = _Step(arrive, asyncio.get_running_loop())
        self._inbox.put(step)
        try:
            # Not shielded, which would be two more turns of the event loop.
            return await step.finished
        except asyncio.CancelledError:
            if step.take():
                # So that the thread forgets it.
                self._inbox.put(step)
            else:
                step.withdrawn = True
                if not step.ended:
                    # The future was cancelled with its caller; the thread tells this one.
                    step.finished = step.loop.create_future()
                await settled(step.finished)
            raise
        finally:
            # The step has its error, whose traceback has this frame: a circle around all that the
            # callers hold, which would wait for the collector of cycles.
            del step

    async def close(self) -> None:
        """Lets what runs end, refuses what waits, joins the thread."""
        if not self._closed:
            self._closed = True
            self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        fault_count = 0
        while not self._closed:
            try:
                self._round()
                fault_count = 0
            except BaseException as fault:  # noqa: BLE001 whatever it is, nobody waits for ever
                fault_count += 1
                # Whoever hears of its error finds the fault told.
                self._on_fault(self._name, handed_on(fault), fault_count)
                self._give_up(
                    lambda: WorkerFault(
                        "the model's thread failed before the step ran; it goes on",
                        worker=self._name,
                    )
                )
                time.sleep(AGAIN.pause(fault_count))
        # What came before the closing, and was not yet taken note of.
        while not self._inbox.empty():
            step = self._inbox.get()
            if step is not None:
                self._in_hand.append(step)
        self._give_up(lambda: WorkerClosed("the model's worker was closed"))

    def _give_up(self, error: Callable[[], Exception]) -> None:
        """Ends with an error of its own each step that waits or is in hand; forgets all."""
        waiting = [step for step, _function in self._functions]
        waiting += self._turn_steps.values()
        # What is in hand may have been claimed to be run: it was not answered all the same.
        # One that its caller withdrew is awaited by nobody.
        for step in waiting:
            step.take()
        _tell([(step, None, error()) for step in (*self._in_hand, *waiting)])
        self._functions.clear()
        self._turns = TurnQueue()
        self._turn_steps = {}
        self._gathering = Gathering()
        self._in_hand = []

    def _round(self) -> None:
        """Takes in what came, then runs functions and a batch of turns, if they wait."""
        self._receive()
        if self._closed:
            return
        began = time.monotonic()
        while self._functions:
            self._run_function(*self._functions.popleft())
            if time.monotonic() - began >= functions_seconds(self._batch_seconds):
                break
        if self._turns:
            self._run_turns()

    def _receive(self) -> None:
        """Takes in all that came, and waits for something when nothing is there to run."""
        if not self._functions and not self._turns:
            self._sort(self._inbox.get())
        while not self._inbox.empty():
            self._sort(self._inbox.get())
        while not self._functions and not self._closed:
            linger = self._gathering.linger_seconds(time.monotonic())
            if not linger:
                return
            try:
                self._sort(self._inbox.get(timeout=linger))
            except queue.Empty:
                return

    def _sort(self, step: _Step | None) -> None:
        if step is not None:
            self._in_hand = [step]
            step.arrive(step)
            self._in_hand = []

    def _run_function(self, step: _Step, function: Callable[[], object]) -> None:
        if not step.take():
            return
        self._in_hand = [step]
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 handed to the task that awaits the step
            _tell([(step, None, handed_on(error))])
        else:
            _tell([(step, result, None)])
        self._in_hand = []

    def _run_turns(self) -> None:
        picked: list[tuple[Turn[Any], int]] = []
        steps = self._in_hand
        for turn, rows in self._turns.next_batch():
            step = self._turn_steps.pop(turn)
            if step.latest is not None and step.withdrawn:
                _tell([_delivery(step, step.latest)])
            elif step.latest is not None or step.take():
                picked.append((turn, rows))
                steps.append(step)
        began = time.monotonic()
        try:
            ends = run_turns(picked)
        except BaseException as error:  # noqa: BLE001 handed to the tasks that await the turns
            _tell([(step, None, handed_on(error)) for step in steps])
        else:
            ended = time.monotonic()
            gathered = [id(turn.session) for turn, _rows in picked if turn.is_gathered]
            self._gathering.served(gathered, began, ended)
            self._latest = self._latest.after_batch(len(picked), ended - began)
            self._after(picked, steps, ends)
        self._batch_seconds = time.monotonic() - began
        self._in_hand = []

    def _after(
        self, picked: Sequence[tuple[Turn[Any], int]], steps: Sequence[_Step], ends: Sequence[Ended]
    ) -> None:
        """Tells of the turns that are over, and has the others wait for their next forward."""
        over: list[Delivery] = []
        # Each goes by how many others there are, in the queue or in the hand.
        tells = [
            end if step.withdrawn else turn.told(end)
            for (turn, _rows), step, end in zip(picked, steps, ends, strict=True)
        ]
        for (turn, _rows), step, end, told in zip(picked, steps, ends, tells, strict=True):
            if told is not None:
                over.append(_delivery(step, told))
                continue
            step.latest = end
            if turn.is_gathered:
                self._gathering.came(id(turn.session), time.monotonic())
            self._turns.add(turn)
            self._turn_steps[turn] = step
        _tell(over)


Delivery = tuple[_Step, object, Exception | None]


def _delivery(step: _Step, end: Ended) -> Delivery:
    return step, end.result, end.error


def _tell(deliveries: Sequence[Delivery]) -> None:
    """Hands results to the loops that await them, to each at once."""
    loops = {step.loop: None for step, _result, _error in deliveries}
    for loop in loops:
        own = [delivery for delivery in deliveries if delivery[0].loop is loop]
        # A loop that is already closed has nobody left who awaits the step.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_deliver, own)


def _deliver(deliveries: Sequence[Delivery]) -> None:
    for step, result, error in deliveries:
        step.finish(result, error)
