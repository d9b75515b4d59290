"""Drafts of several sessions in the forwards of one model: each is what it would be alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.blocking import Result
from kakeya_fleet.engine.contracts.cache import KvCache
from kakeya_fleet.engine.contracts.draft import Draft
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind, OutOfKvMemory
from kakeya_fleet.engine.proposers.autoregressive import (
    AutoregressiveDraftState,
    AutoregressiveProposer,
)
from kakeya_fleet.engine.proposers.shared_forwards import (
    DraftSteps,
    DraftTurn,
    Forwarding,
    SharedForwards,
    Sharer,
    Sharing,
)
from kakeya_fleet.engine.sessions.turns import Turn, run_turns
from kakeya_fleet.node.roles.worker import ModelWorker
from tests.support import hash_verifier as hashing
from tests.support.breadth import again

TOKENS = st.integers(0, hashing.VOCABULARY - 1)
BLOCK = 8


def still() -> float:
    return 0.0


def together(
    forwards: SharedForwards, drafts: Sequence[Forwarding[Draft]]
) -> list[Draft | Exception]:
    """What comes of all of them, in the same forwards as far as they go."""
    turns = [DraftTurn(Sharer(forwards), each) for each in drafts]
    found: dict[int, Draft | Exception] = {}
    while len(found) < len(turns):
        going = [index for index in range(len(turns)) if index not in found]
        ends = run_turns([(turns[index], turns[index].rows) for index in going])
        for index, ended in zip(going, ends, strict=True):
            told = turns[index].told(ended)
            if told is not None:
                found[index] = told.error or cast(Draft, told.result)
    return [found[index] for index in range(len(turns))]


@again(4)
@settings(deadline=None, max_examples=20)
@given(
    texts=st.lists(st.lists(TOKENS, min_size=1, max_size=9), min_size=1, max_size=5),
    sizes=st.lists(st.integers(1, BLOCK), min_size=5, max_size=5),
    goes_back=st.booleans(),
)
def test_each_draft_is_what_it_is_alone(
    texts: list[list[int]], sizes: list[int], goes_back: bool
) -> None:
    """Of different lengths, so that one after the other leaves the others' forwards."""
    verifier = hashing.HashVerifier()
    forwards = SharedForwards(verifier, still)

    def states() -> list[AutoregressiveDraftState]:
        return [
            AutoregressiveDraftState(verifier, text, still, 40, goes_back=goes_back)
            for text in texts
        ]

    alone, sharing = states(), states()
    for _ in range(2):
        expected = [state.propose((), size, 0) for state, size in zip(alone, sizes, strict=False)]
        verifier.batches.clear()
        drafts = together(
            forwards,
            [state.proposing((), size, 0) for state, size in zip(sharing, sizes, strict=False)],
        )
        assert [cast(Draft, each).token_ids for each in drafts] == [
            each.token_ids for each in expected
        ]
        most = max(each.forward_pass_count for each in expected)
        # What there are many of is read before.
        assert len(verifier.batches) <= most + 1
        for state, draft in zip((*alone, *sharing), (*expected, *expected), strict=True):
            state.commit([*draft.token_ids[:3], 7])
    for state in (*alone, *sharing):
        state.close()
    assert verifier.pool.used_bytes == 0


class Short(hashing.HashVerifier):
    """From its third forward of several on it has no memory for the tokens of one of them."""

    def __init__(self) -> None:
        super().__init__()
        self._forwards_left = 3
        self.is_poor: Callable[[KvCache], bool] = lambda _cache: False

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        self._forwards_left -= len(feeds) > 1
        if self._forwards_left <= 0 and any(self.is_poor(feed.cache) for feed in feeds):
            raise OutOfKvMemory("no memory", needed_bytes="1", free_bytes="0")
        return super().forward_batch(feeds)


def test_the_fault_of_one_leaves_the_others_their_forwards() -> None:
    verifier = Short()
    forwards = SharedForwards(verifier, still)
    states = [
        AutoregressiveDraftState(verifier, [number, 5, 9], still, 40, goes_back=True)
        for number in range(3)
    ]
    expected = [state.propose((), BLOCK, 0).token_ids for state in states]
    verifier.is_poor = lambda cache: cache is states[1]._cache
    drafts = together(forwards, [state.proposing((), BLOCK, 0) for state in states])
    fault = drafts.pop(1)
    assert isinstance(fault, DraftFailed)
    assert fault.kind is DraftFaultKind.UNREACHABLE
    del expected[1]
    assert [cast(Draft, each).token_ids for each in drafts] == expected


@pytest.fixture
async def worker() -> AsyncIterator[ModelWorker]:
    worker = ModelWorker("drafts")
    yield worker
    await worker.close()


async def test_drafts_that_are_asked_for_at_the_same_time_share_forwards(
    worker: ModelWorker,
) -> None:
    """And one that is cancelled leaves them; its session drafts on."""
    verifier = hashing.HashVerifier()
    proposer = AutoregressiveProposer(verifier, still)
    sharing = Sharing(proposer.forwards, worker.run_turn, worker.others_wait)
    texts = [[number, 5, 9] for number in range(6)]
    expected = [proposer.open_whole(text).propose((), BLOCK, 0).token_ids for text in texts]
    states = [proposer.open(text) for text in texts]
    steps = [DraftSteps(lambda _count: worker.run, sharing) for _ in texts]
    verifier.batches.clear()
    asked = [
        asyncio.ensure_future(step.run(state.proposing((), BLOCK, 0), 1))
        for step, state in zip(steps, states, strict=True)
    ]
    await asyncio.sleep(0)
    asked[0].cancel()
    drafts = await asyncio.gather(*asked[1:])
    assert [each.token_ids for each in drafts] == expected[1:]
    assert max(len(batch) for batch in verifier.batches) > 2
    with pytest.raises(asyncio.CancelledError):
        await asked[0]
    again_drafted = await steps[0].run(states[0].proposing((), BLOCK, 0), 1)
    assert again_drafted.token_ids == expected[0]


async def test_one_that_drafts_alone_goes_on_by_itself_and_lets_others_in(
    worker: ModelWorker,
) -> None:
    """In one turn's time; who comes in the middle of it is in the next forward."""
    verifier = hashing.HashVerifier()
    proposer = AutoregressiveProposer(verifier, still)
    waits: list[bool] = []

    def others_wait() -> bool:
        waits.append(len(waits) == BLOCK // 2)
        return waits[-1]

    turns = []

    async def run_turn(turn: Turn[Result], /) -> Result:
        turns.append(turn)
        return await worker.run_turn(turn)

    steps = DraftSteps(lambda _count: worker.run, Sharing(proposer.forwards, run_turn, others_wait))
    expected = proposer.open_whole([1, 5, 9]).propose((), BLOCK, 0).token_ids
    draft = await steps.run(proposer.open([1, 5, 9]).proposing((), BLOCK, 0), 1)
    assert draft.token_ids == expected
    assert len(turns) == 1
    assert any(waits)
    poor = Short()
    poor_proposer = AutoregressiveProposer(poor, still)
    state = poor_proposer.open([1, 5, 9])
    poor._forwards_left = 0
    poor.is_poor = lambda cache: cache.length > 5
    sharing = Sharing(poor_proposer.forwards, worker.run_turn, lambda: False)
    with pytest.raises(DraftFailed) as caught:
        await DraftSteps(lambda _count: worker.run, sharing).run(state.proposing((), BLOCK, 0), 1)
    assert caught.value.kind is DraftFaultKind.UNREACHABLE


async def test_what_shares_nothing_drafts_as_a_step_of_its_own(worker: ModelWorker) -> None:
    def drafting() -> Forwarding[int]:
        yield from ()
        return 7

    def failing() -> Forwarding[int]:
        yield from ()
        raise DraftFailed(DraftFaultKind.UNREACHABLE, "gone")

    steps = DraftSteps(lambda _count: worker.run, None)
    assert await steps.run(drafting(), 1) == 7
    with pytest.raises(DraftFailed, match="gone"):
        await steps.run(failing(), 1)
