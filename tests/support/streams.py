"""Runs generations and checks the shape of what they yield."""

from __future__ import annotations

import time

from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.speculation.generation import GenerationParameters, generate
from kakeya_fleet.engine.speculation.generation_report import Committed, Done
from kakeya_fleet.engine.speculation.roster import Roster


def parameters(count, *, sampling=GREEDY, **options) -> GenerationParameters:
    options.setdefault("adaptive", False)
    options.setdefault("draft_deadline_seconds", 5.0)
    return GenerationParameters(max_tokens=count, sampling=sampling, **options)


async def collect(
    session, source, asked, *, run, clock=time.perf_counter, recover=None, **options
) -> tuple[list[int], Done]:
    """All tokens and the report; fails unless indices are contiguous and Done is last.

    `source` is a draft source, a roster of several, or None.
    """
    tokens: list[int] = []
    done = None
    before = len(session.history)
    state = options.pop("state", None)
    proposers = source if isinstance(source, Roster | None) else Roster.of_one(source, state)
    driver = SessionDriver(run, clock, recover=recover)
    async for item in generate(session, proposers, asked, driver, **options):
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
