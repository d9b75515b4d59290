"""Sessions that take turns without end: appended tokens, then generated ones, over and over."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kakeya_fleet.engine.contracts.blocking import Runner
from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.sessions.session_record import Activity, KvBudget, SessionRecord
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.engine.sessions.turns import TurnRunner
from kakeya_fleet.engine.speculation.generation import generate
from kakeya_fleet.engine.speculation.generation_parameters import GenerationParameters
from kakeya_fleet.engine.speculation.generation_report import Done, StopReason


@dataclass(frozen=True, slots=True)
class TurnShape:
    """Tokens appended and generated in one turn."""

    appended: int
    generated: int

    @property
    def tokens(self) -> int:
        """Of both kinds."""
        return self.appended + self.generated


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes after `turn` turns: of the sessions' K/V, and resident in the process."""

    turn: int
    kv_bytes: int
    resident_bytes: int


@dataclass(slots=True)
class Endurance:
    """Seconds of each turn in the order of their ends, and readings now and then."""

    latencies: list[float] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    sessions_opened: int = 0
    seconds: float = 0.0


class TurnLoad:
    """Runs turns on sessions of `registry`, all of `budget` and with caches of `spec`.

    Turns are run by `run`, other steps of the verifier by `run_step`.
    """

    def __init__(
        self,
        registry: SessionRegistry[None],
        budget: KvBudget,
        spec: CacheSpec,
        shape: TurnShape,
        run: TurnRunner,
        run_step: Runner,
    ) -> None:
        self._registry = registry
        self._budget = budget
        self._spec = spec
        self._shape = shape
        self._run_step = run_step
        self._driver = SessionDriver(run, time.perf_counter)
        self._parameters = GenerationParameters(max_tokens=shape.generated)

    async def endure(
        self,
        *,
        sessions: int,
        turns: int,
        read: Callable[[int], Reading],
        read_every: int,
        seed: int = 0,
    ) -> Endurance:
        """`turns` turns in all over `sessions` sessions at once; `read(turn)` every so many.

        A session whose history has no room for a turn is closed, and another
        opened. Raises whatever a turn raises: none may fail.
        """
        endurance = Endurance()
        left = iter(range(turns))

        async def one(record: SessionRecord[None], rng: random.Random) -> SessionRecord[None]:
            for _turn in left:
                if not self._has_room(record.session):
                    self._registry.close(record.session_id)
                    record = await self._open(endurance)
                began = time.perf_counter()
                with self._registry.hold(record.session_id, Activity.GENERATING):
                    await self._turn(record.session, rng)
                endurance.latencies.append(time.perf_counter() - began)
                done = len(endurance.latencies)
                if done % read_every == 0:
                    endurance.readings.append(read(done))
            return record

        records = [await self._open(endurance) for _ in range(sessions)]
        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(one(record, random.Random(seed + 1_000_003 * index)))
                for index, record in enumerate(records)
            ]
        endurance.seconds = time.perf_counter() - began
        for task in running:
            self._registry.close(task.result().session_id)
        return endurance

    async def _open(self, endurance: Endurance) -> SessionRecord[None]:
        endurance.sessions_opened += 1
        return await self._run_step(lambda: self._registry.create(self._budget, self._spec))

    def _has_room(self, session: Session) -> bool:
        return len(session.history) + self._shape.tokens <= session.history_limit

    async def _turn(self, session: Session, rng: random.Random) -> None:
        """Appends and generates; raises `ValueError` unless all was generated."""
        size = session.verifier.info.vocabulary_size
        appended = [rng.randrange(size) for _ in range(self._shape.appended)]
        await self._driver.append(session, appended, run_step=self._run_step)
        events = generate(session, None, self._parameters, self._driver)
        done = [event async for event in events if isinstance(event, Done)]
        if [end.stop_reason for end in done] != [StopReason.MAX_TOKENS]:
            raise ValueError(f"a generation ended with {done}")
