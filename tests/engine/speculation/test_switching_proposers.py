"""A generation whose proposer changes in the middle, past the window: the same stream."""

from __future__ import annotations

import asyncio

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import DraftFaultKind
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.speculation.generation_report import DropReason
from kakeya_fleet.engine.speculation.roster import Rival, Roster
from kakeya_fleet.engine.speculation.state import SpeculationState
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams

PROMPT = [(11 * index + index * index // 7) % 48 for index in range(100)]
COUNT = 160
SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=12)
SEEDED = SamplingParameters(temperature=0.7, top_p=0.95, top_k=40, seed=2024)


class ModelClock:
    """Seconds that pass only in forwards and drafts, as a real verifier's do."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def timed():
    """A session over a hash verifier whose forwards take 10 ms of its clock."""

    def opened(clock) -> Session:
        verifier = hashing.HashVerifier()
        session = Session(verifier, verifier.allocate(SPEC))
        session.append(PROMPT)
        honest = verifier.forward_batch

        def forward_batch(feeds):
            clock.now += 0.01
            return honest(feeds)

        verifier.forward_batch = forward_batch
        return session

    return opened


def rival(name, source, hope: float = 8.0) -> Rival:
    return Rival(("node", name), source, SpeculationState(), hope)


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
async def test_who_drafts_changes_and_the_stream_does_not(sampling, timed) -> None:
    async def stream(roster, clock):
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
    kind: DraftFaultKind, timed
) -> None:
    """No block waits for it, and the fault is told."""
    clock = ModelClock()
    asked = streams.parameters(COUNT, adaptive=True, draft_deadline_seconds=0.02)
    alone, _ = await streams.collect(timed(clock), None, asked, run=sources.yielding, clock=clock)
    text = [*PROMPT, *alone]
    honest = sources.AdversarialSource(text, hashing.VOCABULARY)
    broken = sources.FaultySource(text, hashing.VOCABULARY, kind)
    roster = Roster([rival("honest", honest), rival("broken", broken)])

    async def patient(step):
        # Long enough for the deadline to pass beside the forwards.
        await asyncio.sleep(0.002)
        return step()

    tokens, done = await streams.collect(timed(clock), roster, asked, run=patient, clock=clock)
    assert tokens == alone
    assert done.speculation.faults == {DropReason(kind.value): broken.call_count}
    assert 1 <= broken.call_count <= 2
    assert {block.proposer for block in done.timeline} <= {("node", "honest"), None}
    assert broken.in_flight == 0


async def test_a_verifier_that_begins_alone_tries_what_it_is_given(timed) -> None:
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
