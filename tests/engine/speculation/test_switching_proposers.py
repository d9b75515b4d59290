"""A generation whose proposer changes in the middle, past the window: the same stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import Draft, DraftSource
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.speculation.drafting import WARMING_ASKS
from kakeya_fleet.engine.speculation.generation_report import Done, DropReason
from kakeya_fleet.engine.speculation.roster import Rival, Roster
from kakeya_fleet.engine.speculation.state import SpeculationState
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.model_clock import ModelClock, timed_session

Result = TypeVar("Result")

PROMPT = [(11 * index + index * index // 7) % 48 for index in range(100)]
COUNT = 160
SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=12)
SEEDED = SamplingParameters(temperature=0.7, top_p=0.95, top_k=40, seed=2024)


Timed = Callable[[ModelClock], Session]


@pytest.fixture
def timed() -> Timed:
    """See `timed_session`."""
    return lambda clock: timed_session(clock, SPEC, PROMPT)


def rival(name: str, source: DraftSource, hope: float = 8.0, *, stands_in: bool = False) -> Rival:
    return Rival(("node", name), source, SpeculationState(), hope, stands_in)


class DyingSource(sources.OracleSource):
    """Right, until it is asked for the `last` time and later."""

    def __init__(self, text: Sequence[int], kind: DraftFaultKind, last: int) -> None:
        super().__init__(text, hashing.VOCABULARY)
        self.kind = kind
        self.last = last

    async def answer(self, right: list[int], block_size: int) -> Draft:
        if self.call_count < self.last:
            return Draft(tuple(right), 1e-6, 2e-6)
        if self.kind is DraftFaultKind.DEADLINE:
            await asyncio.Event().wait()
        raise DraftFailed(self.kind, "as scripted")


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
async def test_who_drafts_changes_and_the_stream_does_not(
    sampling: SamplingParameters, timed: Timed
) -> None:
    async def stream(roster: Roster | None, clock: ModelClock) -> tuple[list[int], Done]:
        asked = streams.parameters(COUNT, sampling=sampling, adaptive=True)
        session = timed(clock)
        return await streams.collect(session, roster, asked, run=sources.yielding, clock=clock)

    alone, _ = await stream(None, ModelClock())
    text = [*PROMPT, *alone]
    poor = sources.AdversarialSource(text, hashing.VOCABULARY)
    perfect = sources.OracleSource(text, hashing.VOCABULARY)
    roster = Roster([rival("poor", poor), rival("perfect", perfect)])
    tokens, done = await stream(roster, ModelClock())
    assert tokens == alone
    first, second = done.speculation.proposers
    assert (first.proposer[1], second.proposer[1]) == ("poor", "perfect")
    assert first.committed_count + second.committed_count <= COUNT
    drafted_by = [block.proposer[1] for block in done.timeline if block.proposer is not None]
    assert drafted_by[0] == "poor"
    assert drafted_by[-1] == "perfect"
    assert second.block_count == drafted_by.count("perfect")
    assert done.speculation.drop_reason is None
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("kind", [DraftFaultKind.DEADLINE, DraftFaultKind.UNREACHABLE])
async def test_one_that_never_answers_is_opened_beside_the_stream(
    kind: DraftFaultKind, timed: Timed
) -> None:
    """No block waits for it, and the fault is told."""
    clock = ModelClock()
    asked = streams.parameters(COUNT, adaptive=True, draft_deadline_seconds=0.1)
    alone, _ = await streams.collect(timed(clock), None, asked, run=sources.yielding, clock=clock)
    text = [*PROMPT, *alone]
    honest = sources.AdversarialSource(text, hashing.VOCABULARY)
    broken = sources.FaultySource(text, hashing.VOCABULARY, kind)
    roster = Roster([rival("honest", honest), rival("broken", broken)])

    async def patient(step: Callable[[], Result]) -> Result:
        # Long enough for the deadline to pass beside the forwards.
        await asyncio.sleep(0.01)
        return step()

    tokens, done = await streams.collect(timed(clock), roster, asked, run=patient, clock=clock)
    assert tokens == alone
    assert done.speculation.faults == {DropReason(kind.value): broken.call_count}
    assert 1 <= broken.call_count <= 2
    assert {block.proposer for block in done.timeline} <= {("node", "honest"), None}
    assert broken.in_flight == 0


class ReadingSource(sources.OracleSource):
    """Right, once it has read its history, for which it is asked so many times."""

    def __init__(self, text: Sequence[int], reads: int) -> None:
        super().__init__(text, hashing.VOCABULARY)
        self.reads = reads

    async def answer(self, right: list[int], block_size: int) -> Draft:
        return Draft(tuple(right) if self.call_count > self.reads else (), 1e-6, 2e-6)


@pytest.mark.parametrize("reads", [3, COUNT * WARMING_ASKS])
async def test_who_has_nothing_to_draft_yet_is_on_trial_for_no_block(
    reads: int, timed: Timed
) -> None:
    clock = ModelClock()
    asked = streams.parameters(COUNT, adaptive=True)
    alone, _ = await streams.collect(timed(clock), None, asked, run=sources.yielding, clock=clock)
    text = [*PROMPT, *alone]
    poor, reading = sources.AdversarialSource(text, hashing.VOCABULARY), ReadingSource(text, reads)
    roster = Roster([rival("poor", poor), rival("reading", reading)])
    tokens, done = await streams.collect(
        timed(clock), roster, asked, run=sources.yielding, clock=clock
    )
    assert tokens == alone
    blocks = [block for block in done.timeline if block.proposer == ("node", "reading")]
    assert all(block.drafted_count for block in blocks)
    assert bool(blocks) is (reads == 3)
    # It is left alone for a while where it still has nothing.
    assert reads == 3 or reading.call_count < COUNT / 2
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("kind", [DraftFaultKind.DEADLINE, DraftFaultKind.UNREACHABLE])
async def test_one_that_dies_in_mid_stream_is_replaced_in_the_same_generation(
    kind: DraftFaultKind, timed: Timed
) -> None:
    """By one that was not asked before: where two nodes have the same drafter, one is enough."""
    clock = ModelClock()
    # Drafts that come at once are not late on a busy machine.
    asked = streams.parameters(COUNT, adaptive=True, block_size=3, draft_deadline_seconds=0.5)
    alone, _ = await streams.collect(timed(clock), None, asked, run=sources.yielding, clock=clock)
    text = [*PROMPT, *alone]
    dying = DyingSource(text, kind, last=15)
    asked_before: list[int] = []

    class StandIn(sources.OracleSource):
        async def answer(self, right: list[int], block_size: int) -> Draft:
            asked_before.append(dying.call_count)
            return await super().answer(right, block_size)

    stand_in = StandIn(text, hashing.VOCABULARY)
    roster = Roster([rival("dying", dying), rival("spare", stand_in, stands_in=True)])
    tokens, done = await streams.collect(
        timed(clock), roster, asked, run=sources.yielding, clock=clock
    )
    assert tokens == alone
    assert min(asked_before) >= dying.last
    drafted_by = [block.proposer and block.proposer[1] for block in done.timeline]
    lost_at = max(index for index, name in enumerate(drafted_by) if name == "dying")
    alone_count = drafted_by.index("spare") - lost_at - 1
    # The block that lost its draft, and those beside which the other is opened.
    assert alone_count <= 4
    assert drafted_by[-2] == "spare"
    assert done.speculation.drop_reason is None


async def test_a_verifier_that_begins_alone_tries_what_it_is_given(timed: Timed) -> None:
    """A fleet with only a proposer that is predicted to be slower."""
    clock = ModelClock()
    asked = streams.parameters(COUNT, adaptive=True)
    alone, _ = await streams.collect(timed(clock), None, asked, run=sources.yielding, clock=clock)
    perfect = sources.OracleSource([*PROMPT, *alone], hashing.VOCABULARY)
    roster = Roster([rival("perfect", perfect, hope=2.0)], leads=False)
    tokens, done = await streams.collect(
        timed(clock), roster, asked, run=sources.yielding, clock=clock
    )
    assert tokens == alone
    assert done.timeline[0].proposer is None
    assert done.speculation.verify_forward_count < COUNT / 4
