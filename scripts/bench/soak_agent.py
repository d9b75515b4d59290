"""An application as a soak plays it: it opens sessions, takes turns, leaves, forks, thinks."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from kakeya import AsyncClient, AsyncSession, KakeyaError
from scripts.bench.soak_tally import Tally

KINDS = ("sink_window", "full", "restored")
Plan = Literal["auto", "off"]
PLANS: tuple[Plan, ...] = ("auto", "off")
"""Of speculation."""
SINK, WINDOW = 4, 64
PROBE_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Habits:
    """Of every application; shares are of its turns, token counts from and to."""

    pause_seconds: float
    appended: tuple[int, int] = (4, 24)
    generated: tuple[int, int] = (8, 48)
    sampled_share: float = 0.3
    cancelled_share: float = 0.1
    forked_share: float = 0.05

    @property
    def most_tokens(self) -> int:
        """Of one turn, after which there must be room for a fork's too."""
        return self.appended[1] + self.generated[1]


class Application:
    """Takes turns for good, one session after the other, of every kind in turn.

    A session is closed when its context has no room for another turn, or after an error,
    which is counted by its reason; then the next one is opened.
    """

    def __init__(
        self, client: AsyncClient, model: str, text: Sequence[int], habits: Habits, seed: int
    ) -> None:
        """`text` is what stretches of are appended; `tally` may be replaced at any time."""
        self.tally = Tally()
        self._client = client
        self._model = model
        self._text = text
        self._habits = habits
        self._rng = random.Random(seed)
        # Applications begin with different kinds.
        self._kinds = itertools.islice(itertools.cycle(itertools.product(KINDS, PLANS)), seed, None)

    async def live(self) -> None:
        """Until it is cancelled."""
        for kind, plan in self._kinds:
            try:
                await self._session(kind, plan)
            except KakeyaError as error:
                self.tally.failures[error.reason] += 1
                await self._think()

    async def _session(self, kind: str, plan: Plan) -> None:
        session = await self._client.create_session(
            self._model, speculation=plan, client_label="soak", **options(kind)
        )
        self.tally.opened += 1
        async with session:
            while session.history_length + self._habits.most_tokens <= session.model.context_length:
                await self._think()
                await self._some_turn(session, kind)
        self.tally.closed += 1

    async def _some_turn(self, session: AsyncSession, kind: str) -> None:
        if session.history_length == 0 or self._rng.random() >= self._habits.forked_share:
            await self._turn(session, kind)
            return
        branch = await session.fork()
        self.tally.forked += 1
        async with branch:
            turns = (self._turn(session, kind), self._turn(branch, kind))
            failures = await asyncio.gather(*turns, return_exceptions=True)
        for failure in failures:
            if failure is not None:
                raise failure

    async def _turn(self, session: AsyncSession, kind: str) -> None:
        rng, habits = self._rng, self._habits
        begin = rng.randrange(len(self._text) - habits.appended[1])
        said = self._text[begin : begin + rng.randint(*habits.appended)]
        sampled = rng.random() < habits.sampled_share
        began = time.perf_counter()
        await session.append(said)
        generation = session.generate(
            rng.randint(*habits.generated),
            temperature=0.8 if sampled else 0.0,
            seed=rng.getrandbits(32) if sampled else None,
        )
        if rng.random() < habits.cancelled_share:
            async for _ in generation:
                break
            self.tally.cancelled += 1
            return
        answer = await generation.collect()
        seconds = time.perf_counter() - began
        self.tally.turn(kind, len(said), len(answer.token_ids), seconds)

    async def _think(self) -> None:
        await asyncio.sleep(self._rng.expovariate(1.0 / self._habits.pause_seconds))


class CacheOptions(TypedDict, total=False):
    """Those arguments of `create_session` that say what a session keeps."""

    kv_strategy: str
    sink_tokens: int
    window_tokens: int


def options(kind: str) -> CacheOptions:
    """Arguments of `create_session` for a kind of cache."""
    if kind == "full":
        return {"kv_strategy": kind}
    return {"kv_strategy": kind, "sink_tokens": SINK, "window_tokens": WINDOW}


async def probe(client: AsyncClient, model: str, prompt: Sequence[int]) -> dict[str, str]:
    """Digests of the answers to one prompt, greedy and sampled, by kind of cache and plan."""
    answers = {}
    for kind, plan in itertools.product(KINDS, PLANS):
        session = await client.create_session(
            model, speculation=plan, client_label="probe", **options(kind)
        )
        async with session:
            await session.append(prompt)
            greedy = await session.generate(PROBE_TOKENS).collect()
            sampled = await session.generate(PROBE_TOKENS, temperature=0.8, seed=7).collect()
        ids = [*greedy.token_ids, *sampled.token_ids]
        answers[f"{kind} {plan}"] = hashlib.sha256(repr(ids).encode()).hexdigest()[:16]
    return answers


def differing(answers: dict[str, str], first: dict[str, str]) -> list[str]:
    """Names of answers that are not the first ones, or that depend on the drafter."""
    drifted = {name for name, digest in answers.items() if first[name] != digest}
    for kind in KINDS:
        names = [f"{kind} {plan}" for plan in PLANS]
        if len({answers[name] for name in names}) > 1:
            drifted.update(names)
    return sorted(drifted)
