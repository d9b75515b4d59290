"""Runs generations and checks the shape of what they yield."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from kakeya_fleet.engine.contracts.draft import DraftSource
from kakeya_fleet.engine.contracts.guide import Guide
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.sessions.turns import TurnRunner
from kakeya_fleet.engine.speculation.generation import generate
from kakeya_fleet.engine.speculation.generation_parameters import GenerationParameters
from kakeya_fleet.engine.speculation.generation_report import BlockTiming, Committed, Done
from kakeya_fleet.engine.speculation.roster import Roster
from kakeya_fleet.engine.speculation.state import SpeculationState


def parameters(
    count: int,
    *,
    sampling: SamplingParameters = GREEDY,
    stop_ids: frozenset[int] = frozenset(),
    deadline_seconds: float = 0.0,
    block_size: int = 0,
    draft_deadline_seconds: float = 5.0,
    adaptive: bool = False,
    guide: Guide | None = None,
    said_count: int = 0,
) -> GenerationParameters:
    return GenerationParameters(
        max_tokens=count,
        sampling=sampling,
        stop_ids=stop_ids,
        deadline_seconds=deadline_seconds,
        block_size=block_size,
        draft_deadline_seconds=draft_deadline_seconds,
        adaptive=adaptive,
        guide=guide,
        said_count=said_count,
    )


async def collect(
    session: Session,
    source: DraftSource | Roster | None,
    asked: GenerationParameters,
    *,
    run: TurnRunner,
    clock: Callable[[], float] = time.perf_counter,
    recover: Callable[[], Awaitable[None]] | None = None,
    state: SpeculationState | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    on_block: Callable[[BlockTiming], None] = lambda _timing: None,
    gather_seconds: float = 0.0,
) -> tuple[list[int], Done]:
    """All tokens and the report; fails unless indices are contiguous and Done is last.

    `source` is a draft source, a roster of several, or None.
    """
    tokens: list[int] = []
    done = None
    before = len(session.history)
    proposers = source if isinstance(source, Roster | None) else Roster.of_one(source, state)
    driver = SessionDriver(run, clock, recover=recover, gather_seconds=lambda: gather_seconds)
    stream = generate(session, proposers, asked, driver, should_stop=should_stop, on_block=on_block)
    async for item in stream:
        assert done is None, "something followed Done"
        if isinstance(item, Done):
            done = item
            continue
        assert isinstance(item, Committed)
        assert item.token_ids
        assert item.first_index == before + len(tokens)
        assert 0 <= item.drafted_count <= len(item.token_ids)
        tokens.extend(item.token_ids)
    assert done is not None
    assert done.generated_token_count == len(tokens)
    assert done.history_length == len(session.history)
    assert session.history[before:] == tokens
    return tokens, done
