"""A restored session whose store is lost goes on with the same stream, or fails by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import OutOfKvMemory, RestorerLost, SessionNotFound
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from kakeya_fleet.engine.speculation.generation_report import StopReason
from tests.support import draft_sources as sources
from tests.support import restored_caches as caches
from tests.support import streams
from tests.support.small_verifiers import FITTING

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)
SPEC = CacheSpec(CacheKind.RESTORED, sink=3, window=16, restorer=ARCHIVE)
COUNT = 50
SAMPLED = SamplingParameters(temperature=0.9, seed=5)


@pytest.fixture(scope="module")
def verifier(random_checkpoint: Callable[..., Path]) -> Verifier:
    return load_verifier(ModelFolder(random_checkpoint(**FITTING), "random"), backend="torch")


@pytest.fixture(scope="module")
def new_store(verifier: Verifier) -> Callable[[int], Any]:
    """A store that is lost after so many calls."""

    def make(calls: int = 1 << 30) -> Any:
        store = TorchEvictedStore(verifier.evicted_shape(SPEC), ARCHIVE, kv_pool())
        return caches.FragileStore(store, calls)

    return make


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    return list(caches.HISTORY[:120])


@pytest.fixture(scope="module", params=["greedy", "seeded"])
def sampling(request: pytest.FixtureRequest) -> SamplingParameters:
    return GREEDY if request.param == "greedy" else SAMPLED


@pytest.fixture(scope="module")
def alone(
    verifier: Verifier,
    new_store: Callable[..., Any],
    prompt: list[int],
    sampling: SamplingParameters,
) -> list[int]:
    """The stream of a session that loses nothing."""
    session = Session.allocate(verifier, SPEC, new_store())
    session.append(prompt)
    asked = streams.parameters(COUNT, sampling=sampling)
    tokens, _ = asyncio.run(streams.collect(session, None, asked, run=sources.yielding))
    assert len(set(tokens)) > 4
    return list(tokens)


class Recovery:
    """Gives the session stores that are lost after the next of `calls`, and then none."""

    def __init__(self, session: Session, make: Callable[[int], Any], calls: list[int]) -> None:
        self._session = session
        self._make = make
        self._calls = list(calls)
        self.count = 0

    async def __call__(self) -> None:
        await asyncio.sleep(0)
        self.count += 1
        if not self._calls:
            raise RestorerLost("no store within the deadline")
        self._session.renew(self._make(self._calls.pop(0)))


# Lost in prefill, in the first blocks, at a deposit, between two layers, while it is made
# anew, and several times.
LOSSES = [[0], [3], [22], [23], [27], [22, 28], [30, 5, 24, 23], [1, 1, 1, 28]]
DRAFTS = ["none", "right", "adversarial"]


async def test_the_stream_of_a_session_made_anew_is_the_same(
    verifier: Verifier,
    new_store: Callable[..., Any],
    prompt: list[int],
    sampling: SamplingParameters,
    alone: list[int],
) -> None:
    """Every other loss greedily and the rest seeded, each with another of the kinds of drafts."""
    for number, losses in list(enumerate(LOSSES))[sampling.greedy :: 2]:
        drafts = DRAFTS[number % len(DRAFTS)]
        await assert_the_same_stream(verifier, new_store, prompt, sampling, alone, losses, drafts)


async def assert_the_same_stream(
    verifier: Verifier,
    new_store: Callable[..., Any],
    prompt: list[int],
    sampling: SamplingParameters,
    alone: list[int],
    losses: list[int],
    drafts: str,
) -> None:
    session = Session.allocate(verifier, SPEC, new_store(losses[0]))
    session.append(prompt)
    source = None
    if drafts != "none":
        kind = sources.OracleSource if drafts == "right" else sources.AdversarialSource
        source = kind(prompt + alone, 96)
    recover = Recovery(session, new_store, [*losses[1:], 1 << 30])
    tokens, done = await streams.collect(
        session,
        source,
        streams.parameters(COUNT, sampling=sampling),
        run=sources.yielding,
        recover=recover,
        # Without drafts some of the losses are behind tokens that were not told yet.
        gather_seconds=0.05,
    )
    assert tokens == alone, (losses, drafts)
    assert recover.count == len(losses)
    assert session.pending == 0
    assert done.stop_reason is StopReason.MAX_TOKENS
    if source is not None:
        assert source.in_flight == 0


async def test_without_a_store_it_fails_by_name_and_the_session_lives(
    verifier: Verifier,
    new_store: Callable[..., Any],
    prompt: list[int],
    sampling: SamplingParameters,
    alone: list[int],
) -> None:
    session = Session.allocate(verifier, SPEC, new_store(26))
    session.append(prompt)
    source = sources.OracleSource(prompt + alone, 96)
    asked = streams.parameters(COUNT, sampling=sampling)
    with pytest.raises(RestorerLost, match="within the deadline"):
        await streams.collect(
            session,
            source,
            asked,
            run=sources.yielding,
            recover=Recovery(session, new_store, []),
        )
    assert source.in_flight == 0
    kept = len(session.history)
    assert prompt + alone[: kept - len(prompt)] == session.history[:]
    for _ in range(2):
        with pytest.raises(RestorerLost, match="as scripted"):
            await streams.collect(session, None, asked, run=sources.yielding)
    session.renew(new_store())
    assert session.pending == kept - 1
    rest = streams.parameters(COUNT - (kept - len(prompt)), sampling=sampling)
    tokens, _ = await streams.collect(session, None, rest, run=sources.yielding)
    assert session.history[len(prompt) :] == alone
    assert tokens == alone[kept - len(prompt) :]


async def test_prefill_alone_recovers_too(
    verifier: Verifier, new_store: Callable[..., Any], prompt: list[int]
) -> None:
    session = Session.allocate(verifier, SPEC, new_store(9))
    session.append(prompt)
    with pytest.raises(RestorerLost):
        await SessionDriver(sources.yielding, lambda: 0.0).prefill(session)
    assert 0 < session.pending < len(prompt) - 1
    recover = Recovery(session, new_store, [4, 1 << 30])
    await SessionDriver(sources.yielding, lambda: 0.0, recover=recover).prefill(session)
    assert session.pending == 0


def test_a_lost_turn_leaves_the_session_where_it_stood(
    verifier: Verifier, new_store: Callable[..., Any], prompt: list[int]
) -> None:
    session = Session.allocate(verifier, SPEC, new_store(24))
    session.append(prompt)
    while session.pending:
        before, length = session.pending, len(session.history)
        try:
            PrefillTurn(session)()
        except RestorerLost:
            assert (session.pending, len(session.history)) == (before, length)
            break
    else:
        with pytest.raises(RestorerLost):
            for _ in range(60):
                length = len(session.history)
                VerifyTurn(session, Block([], GREEDY, 9))()
        assert (session.pending, len(session.history)) == (0, length)


def test_what_a_renewed_session_had_is_given_back_first(
    verifier: Verifier, new_store: Callable[..., Any], prompt: list[int]
) -> None:
    store = new_store()
    session = Session.allocate(verifier, SPEC, store)
    session.append(prompt)
    used, before = verifier.pool.used_bytes, session.memory_bytes
    verifier.pool.budget_bytes = used
    try:
        PrefillTurn(session)()
        other = new_store()
        session.renew(other)
        assert store.released
        assert not other.released
        assert (session.memory_bytes, verifier.pool.used_bytes) == (before, used)
        # A smaller budget: nothing to begin anew with, until there is room again.
        verifier.pool.budget_bytes = 1
        unused = new_store()
        with pytest.raises(OutOfKvMemory):
            session.renew(unused)
        assert other.released
        assert not unused.released
        assert session.memory_bytes == 0
        with pytest.raises(RestorerLost):
            PrefillTurn(session)()
    finally:
        verifier.pool.budget_bytes = None
    session.renew(unused)
    while PrefillTurn(session)():
        pass
    assert session.memory_bytes == before
    session.end("closed")
    assert unused.released
    late = new_store()
    with pytest.raises(SessionNotFound):
        session.renew(late)
    assert not late.released


def test_a_fork_has_a_store_of_its_own(
    verifier: Verifier, new_store: Callable[..., Any], prompt: list[int]
) -> None:
    def next_tokens(session: Session) -> list[int]:
        while PrefillTurn(session)():
            pass
        return [VerifyTurn(session, Block([], GREEDY, 1))().step.committed[0] for _ in range(20)]

    expected = {}
    for length in (120, 117, 40):
        session = Session.allocate(verifier, SPEC, new_store())
        session.append(prompt[:length])
        expected[length] = next_tokens(session)
    origin = Session.allocate(verifier, SPEC, new_store())
    origin.append(prompt)
    while PrefillTurn(origin)():
        pass
    # The last is behind what the ring still has: computed anew, over what is deposited.
    forks = {length: origin.fork(length) for length in expected}
    assert forks[120].pending == 0
    assert forks[40].pending == 39
    assert next_tokens(origin) == expected[120]
    origin.end("closed")
    assert {length: next_tokens(fork) for length, fork in forks.items()} == expected


def test_the_registry_takes_over_or_releases(
    verifier: Verifier, new_store: Callable[..., Any], prompt: list[int]
) -> None:
    ids = iter(f"s{number}" for number in range(99))
    sessions: SessionRegistry[None] = SessionRegistry(clock=lambda: 0.0, ids=lambda: next(ids))
    room = verifier.pool.used_bytes + verifier.bytes_needed(SPEC)
    budget = sessions.add_verifier(verifier, room)
    try:
        first = new_store()
        record = sessions.create(budget, SPEC, request_id="r", evicted=first)
        retried = new_store()
        assert sessions.create(budget, SPEC, request_id="r", evicted=retried) is record
        assert (first.released, retried.released) == (False, True)
        refused = new_store()
        with pytest.raises(OutOfKvMemory):
            sessions.create(budget, SPEC, evicted=refused)
        assert refused.released
        record.session.append(prompt[:60])
        while PrefillTurn(record.session)():
            pass
        anew = new_store()
        sessions.renew(record.session_id, anew)
        assert (first.released, anew.released) == (True, False)
        assert record.session.pending == 59
        sessions.close(record.session_id)
        assert anew.released
        gone = new_store()
        with pytest.raises(SessionNotFound):
            sessions.renew(record.session_id, gone)
        assert gone.released
    finally:
        sessions.close_all()
        verifier.pool.budget_bytes = None
