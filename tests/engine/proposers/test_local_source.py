from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from kakeya_fleet.engine.contracts.draft import Draft, DraftState
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind, ModelNotFound
from kakeya_fleet.engine.proposers.loading import LOADERS, load_proposer
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.proposers.names import WITHOUT_FILES
from kakeya_fleet.engine.proposers.ngram import NgramProposer
from kakeya_fleet.engine.sessions.history import History
from tests.support.replacing import replace_method

Result = TypeVar("Result")


class CountingProposer:
    """Shows what it was given: the draft is (length, last token, assumed...)."""

    model_id = "counting"
    encoder = None
    info = NgramProposer().info

    def __init__(self) -> None:
        self.received: list[list[int]] = []
        self.states: list[DraftState] = []

    def open(self, prefix: Sequence[int]) -> DraftState:
        state = NgramProposer().open(prefix)
        self.received.append(list(prefix))
        self.states.append(state)
        honest = state.commit

        def commit(token_ids: Sequence[int]) -> None:
            self.received.append(list(token_ids))
            honest(token_ids)

        replace_method(state, "commit", commit)
        return state


async def test_only_what_was_committed_since_reaches_the_proposer() -> None:
    proposer = CountingProposer()
    source = LocalDraftSource(proposer)
    history = History([1, 2, 1])
    draft = await source.draft(history.until(3), (), 2)
    assert draft.token_ids == (2, 1)
    history.extend([2, 3])
    draft = await source.draft(history.until(5), (1,), 2)
    assert draft.token_ids == (2, 3)
    await source.draft(history.until(5), (), 2)
    assert proposer.received == [[1, 2, 1], [2, 3], []]


async def test_a_history_that_shrinks_is_a_defect() -> None:
    source = LocalDraftSource(NgramProposer())
    await source.draft([1, 2, 3], (), 1)
    with pytest.raises(ValueError, match="3 were seen"):
        await source.draft([1, 2], (), 1)


async def test_drafts_in_flight_are_answered_in_order_and_fail_when_it_closes() -> None:
    gate = asyncio.Event()

    async def gated(step: Callable[[], Result]) -> Result:
        await gate.wait()
        return step()

    source = LocalDraftSource(NgramProposer(), runner=lambda _count: gated)
    history = History([5, 6, 5])
    first = asyncio.ensure_future(source.draft(history.until(3), (), 1))
    second = asyncio.ensure_future(source.draft(history.until(3), (6,), 1))
    await asyncio.sleep(0)
    gate.set()
    assert [(await first).token_ids, (await second).token_ids] == [(6,), (5,)]
    gate.clear()
    third = asyncio.ensure_future(source.draft(history, (), 1))
    await asyncio.sleep(0)
    await source.close()
    gate.set()
    for late in (third, source.draft(history, (), 1)):
        with pytest.raises(DraftFailed) as caught:
            await late
        assert caught.value.kind is DraftFaultKind.UNREACHABLE


async def test_a_draft_that_nobody_waits_for_any_more_is_taken_back() -> None:
    drafting, taken_back = threading.Event(), threading.Event()
    proposer = CountingProposer()
    source = LocalDraftSource(proposer, runner=lambda _count: asyncio.to_thread)
    history = History([5, 6, 5])

    def long(*_: object) -> Draft:
        drafting.set()
        # One that nobody takes back would be made to its end, and hold up the next.
        assert taken_back.wait(60)
        return Draft(())

    await source.draft(history.until(3), (), 1)
    (state,) = proposer.states
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(state, "propose", long)
        patched.setattr(state, "take_back", taken_back.set)
        task = asyncio.ensure_future(source.draft(history.until(3), (6,), 1))
        await asyncio.to_thread(drafting.wait, 60)
        assert not taken_back.is_set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert taken_back.is_set()
    assert (await source.draft(history.until(3), (), 1)).token_ids == (6,)


async def test_the_round_trip_contains_the_wait_for_the_thread() -> None:
    now = [0.0]

    async def slow(step: Callable[[], Result]) -> Result:
        now[0] += 3.0
        return step()

    source = LocalDraftSource(
        NgramProposer(clock=lambda: now[0]), runner=lambda _count: slow, clock=lambda: now[0]
    )
    draft = await source.draft([1, 1], (), 1)
    assert (draft.compute_seconds, draft.round_trip_seconds) == (0.0, 3.0)


def test_proposers_are_loaded_by_name() -> None:
    assert load_proposer("ngram").model_id == "ngram"
    with pytest.raises(ModelNotFound, match=r"there is: .*ngram") as caught:
        load_proposer("nrgam")
    assert caught.value.metadata == {"model_id": "nrgam", "known_models": ", ".join(LOADERS)}


def test_what_has_no_files_is_known_before_anything_that_loads_it() -> None:
    assert LOADERS.keys() == WITHOUT_FILES
