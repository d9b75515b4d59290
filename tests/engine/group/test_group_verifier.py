"""A group's verifier is to the rest of the engine what its ranks' verifier is."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Never, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Output, Verifier
from kakeya_fleet.engine.errors import (
    BadParameters,
    ContextExceeded,
    EngineError,
    GroupLost,
    KvStrategyUnsupported,
    OutOfKvMemory,
    SessionNotFound,
    TokenOutOfVocabulary,
    WeightsMismatch,
)
from kakeya_fleet.engine.group.fields import Json
from kakeya_fleet.engine.group.group_verifier import GroupVerifier
from kakeya_fleet.engine.group.messages import Message
from kakeya_fleet.engine.sessions.session_record import KvBudget
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.engine.sessions.turns import PrefillTurn
from kakeya_fleet.engine.verifiers.exactness import settle
from tests.support import group_ranks as local
from tests.support import hash_verifier as hashing
from tests.support.breadth import wide
from tests.support.replacing import replace_method

Result = TypeVar("Result")

RING = CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13)
WHOLE = CacheSpec(CacheKind.CONTIGUOUS, capacity=80)
GROWING = replace(WHOLE, grows=True)
TOKENS = [(7 * index + index * index) % hashing.VOCABULARY for index in range(200)]


def group(count: int = 2, **options: int) -> tuple[GroupVerifier, list[local.LocalRank]]:
    return local.group_of([hashing.HashVerifier(**options) for _ in range(count)])


@dataclass
class Returned(Generic[Result]):
    value: Result


def outcome(function: Callable[[], Result]) -> Returned[Result] | Exception:
    """What it returns, or raises."""
    try:
        return Returned(function())
    except (EngineError, ValueError) as error:
        return error


def state(cache: KvCache) -> tuple[object, ...]:
    return (
        cache.length,
        cache.resident,
        cache.memory_bytes,
        cache.freed_bytes,
        cache.widest,
        cache.forkable_from,
        [(slab.nbytes, slab.holders, slab.copies_reserved) for slab in cache.slabs],
    )


class SameAsAlone(RuleBasedStateMachine):
    """Every operation on a group of two and on one verifier alone: same state, bits and errors."""

    def __init__(self) -> None:
        super().__init__()
        self.alone = hashing.HashVerifier(context_length=120)
        self.group, self.ranks = group(context_length=120)
        self.pairs: dict[int, tuple[KvCache, KvCache]] = {}
        self.next = itertools.count()

    @initialize(budget=st.sampled_from([None, 1024, 2048]))
    def limit(self, budget: int | None) -> None:
        self.alone.pool.budget_bytes = self.group.pool.budget_bytes = budget

    def same(
        self, ours: Callable[[], Result], theirs: Callable[[], Result]
    ) -> tuple[Result, Result] | None:
        """The results of both, None when both refuse alike."""
        expected, found = outcome(theirs), outcome(ours)
        assert type(found) is type(expected)
        if isinstance(expected, Returned):
            assert isinstance(found, Returned)
            return found.value, expected.value
        assert str(found) == str(expected)
        return None

    def keep(self, made: tuple[KvCache, KvCache] | None) -> None:
        if made is not None:
            self.pairs[next(self.next)] = made

    @rule(spec=st.sampled_from([RING, WHOLE, GROWING, replace(WHOLE, capacity=500)]))
    def allocate(self, spec: CacheSpec) -> None:
        needed = self.same(
            lambda: self.group.bytes_needed(spec), lambda: self.alone.bytes_needed(spec)
        )
        assert needed is None or needed[0] == needed[1]
        self.keep(self.same(lambda: self.group.allocate(spec), lambda: self.alone.allocate(spec)))

    @precondition(lambda self: self.pairs)
    @rule(
        chosen=st.data(),
        counts=st.lists(st.integers(0, 17), min_size=1, max_size=3),
        logits=st.booleans(),
        offset=st.integers(0, 100),
    )
    def forward(self, chosen: st.DataObject, counts: list[int], logits: bool, offset: int) -> None:
        keys = chosen.draw(st.permutations(sorted(self.pairs)))[: len(counts)]
        ids = [TOKENS[offset : offset + count] for count in counts]
        feeds = [
            [
                Feed(self.pairs[key][side], tokens, logits, (1, 0) if logits else (2, 0))
                for key, tokens in zip(keys, ids, strict=False)
            ]
            for side in (0, 1)
        ]
        found = self.same(
            lambda: self.group.forward_batch(feeds[0]), lambda: self.alone.forward_batch(feeds[1])
        )
        for ours, theirs in zip(*found or ((), ()), strict=True):
            assert (ours.logits is None) == (theirs.logits is None)
            if logits:
                assert ours.logits.tobytes() == theirs.logits.tobytes()
            assert ours.features.tobytes() == theirs.features.tobytes()

    @precondition(lambda self: self.pairs)
    @rule(chosen=st.data(), back=st.integers(-1, 18))
    def truncate(self, chosen: st.DataObject, back: int) -> None:
        ours, theirs = self.pairs[chosen.draw(st.sampled_from(sorted(self.pairs)))]
        length = theirs.length - back
        try:
            theirs.truncate(length)
        except ValueError:
            with pytest.raises(ValueError, match="cannot keep"):
                ours.truncate(length)
        else:
            ours.truncate(length)

    @precondition(lambda self: self.pairs)
    @rule(chosen=st.data(), back=st.integers(-1, 30))
    def fork(self, chosen: st.DataObject, back: int) -> None:
        ours, theirs = self.pairs[chosen.draw(st.sampled_from(sorted(self.pairs)))]
        length = theirs.length - back
        if theirs.forkable_from <= length <= theirs.length:
            assert ours.fork_bytes(length) == theirs.fork_bytes(length)
        self.keep(self.same(lambda: ours.fork(length), lambda: theirs.fork(length)))

    @precondition(lambda self: self.pairs)
    @rule(chosen=st.data(), count=st.integers(1, 90))
    def fill(self, chosen: st.DataObject, count: int) -> None:
        ours, theirs = self.pairs[chosen.draw(st.sampled_from(sorted(self.pairs)))]
        self.same(lambda: ours.fill(count, 5), lambda: theirs.fill(count, 5))

    @precondition(lambda self: self.pairs)
    @rule(chosen=st.data(), meanwhile=st.booleans())
    def release(self, chosen: st.DataObject, meanwhile: bool) -> None:
        """Also while a command is under way, as a session that is closed by another thread."""
        key = chosen.draw(st.sampled_from(sorted(self.pairs)))
        ours, theirs = self.pairs.pop(key)
        if meanwhile:
            self.ranks[1].on_answer = ours.release
            self.group.bytes_needed(RING)
            self.ranks[1].on_answer = lambda: None
        ours.release()
        ours.release()
        theirs.release()

    @invariant()
    def pictures_agree(self) -> None:
        pool, alone = self.group.pool, self.alone.pool
        assert (pool.used_bytes, pool.free_bytes) == (alone.used_bytes, alone.free_bytes)
        for ours, theirs in self.pairs.values():
            # What another's release frees comes with the ranks' next word of this one.
            drop = 3
            expected = state(theirs)
            found = state(ours)
            assert found[:drop] == expected[:drop]
            assert found[drop + 1 :] == expected[drop + 1 :]


@pytest.mark.parametrize("examples", [10, wide(30)])
def test_they_are_the_same_as_alone(examples: int) -> None:
    run_state_machine_as_test(
        SameAsAlone,
        settings=settings(deadline=None, max_examples=examples, stateful_step_count=30),
    )


def test_every_rank_runs_every_command_in_one_order() -> None:
    verifier, ranks = group(3)
    cache = verifier.allocate(RING)
    verifier.forward(cache, TOKENS[:9], want_logits=True)
    cache.truncate(7)
    verifier.allocate(WHOLE)
    assert ranks[0].commands == ["info", "allocate", "forward", "allocate"]
    assert ranks[1].commands == ranks[2].commands == ranks[0].commands


def test_refusals_come_as_their_own_classes() -> None:
    verifier, _ = group()
    cache = verifier.allocate(WHOLE)
    with pytest.raises(TokenOutOfVocabulary) as unknown:
        verifier.forward(cache, [1, 48], want_logits=True)
    assert unknown.value.metadata == {"token_id": "48"}
    with pytest.raises(BadParameters, match="0 tokens"):
        verifier.forward(cache, [], want_logits=True)
    with pytest.raises(BadParameters, match="row counts"):
        verifier.use_row_counts([3])
    with pytest.raises(ContextExceeded):
        cache.fill(5000, 1)
    with pytest.raises(TypeError, match="another verifier"):
        verifier.forward(hashing.HashVerifier().allocate(RING), [1], want_logits=True)
    restored = CacheSpec(
        CacheKind.RESTORED, sink=1, window=4, restorer=RestorerSpec(RestorerKind.ARCHIVE)
    )
    for refused in (verifier.allocate, verifier.bytes_needed, verifier.evicted_shape):
        with pytest.raises(KvStrategyUnsupported, match="group of ranks"):
            refused(restored)
    assert cache.length == 0
    assert not verifier.lost


def test_settling_works_on_the_ranks_and_leaves_no_memory_behind() -> None:
    verifier, ranks = group(context_length=300)
    verifier.use_row_counts([4, 64])
    found = settle(verifier)
    assert found.exact
    assert found.thread_count == verifier.thread_count
    assert verifier.pool.used_bytes == 0
    verifier.bytes_needed(RING)
    assert {rank.server._verifiers[0].pool.used_bytes for rank in ranks} == {0}
    verifier.use_row_counts([16, 64])
    assert verifier.row_counts == (16, 64)
    assert {rank.server._verifiers[0].row_counts for rank in ranks} == {(16, 64)}


def test_ranks_of_different_models_or_processors() -> None:
    other = hashing.HashVerifier()
    other.info = replace(other.info, weights_digest="1" * 64)
    with pytest.raises(WeightsMismatch, match="rank 1 has loaded hash"):
        local.group_of([hashing.HashVerifier(), other])
    older = hashing.HashVerifier()
    older.use_row_counts([16, 64])
    verifier, _ = local.group_of([hashing.HashVerifier(), older])
    assert verifier.row_counts == (16, 64)


@pytest.mark.parametrize(("counts", "told"), [((3, 3), 3), ((3, 2), 0)])
def test_threads_of_the_ranks_are_told_where_they_are_equal(
    counts: tuple[int, int], told: int
) -> None:
    models = [hashing.HashVerifier() for _ in counts]
    for model, count in zip(models, counts, strict=True):
        model.thread_count = count
    verifier, _ = local.group_of(models)
    assert verifier.thread_count == told


def sessions_of(verifier: Verifier, budget_bytes: int) -> tuple[SessionRegistry[None], KvBudget]:
    clock = itertools.count()
    ids = itertools.count()
    registry: SessionRegistry[None] = SessionRegistry(
        clock=lambda: next(clock) * 100.0,
        ids=lambda: f"s{next(ids)}",
    )
    return registry, registry.add_verifier(verifier, budget_bytes)


def test_sessions_are_admitted_by_the_bytes_of_the_ranks() -> None:
    verifier, ranks = group()
    needed = verifier.bytes_needed(RING)
    registry, budget = sessions_of(verifier, 2 * needed)
    first = registry.create(budget, RING)
    with registry.hold(first.session_id, first.activity):
        second = registry.create(budget, RING)
        # The idle one makes room: its memory counts no more before the ranks gave it back.
        third = registry.create(budget, RING)
        assert budget.used_bytes == 2 * needed
        assert second.session.is_resting
        with registry.hold(third.session_id, third.activity), pytest.raises(OutOfKvMemory):
            registry.create(budget, RING)
    third.session.append(TOKENS[:40])
    while PrefillTurn(third.session)():
        pass
    forked = registry.fork(third.session_id)
    assert forked.session.memory_bytes == needed
    registry.close_all()
    assert budget.used_bytes == 0
    verifier.bytes_needed(RING)
    assert {rank.server._verifiers[0].pool.used_bytes for rank in ranks} == {0}
    assert {rank.server._verifiers[0].pool.budget_bytes for rank in ranks} == {2 * needed}


def test_a_lost_rank_ends_the_group_for_good_and_frees_what_the_leader_counts() -> None:
    verifier, ranks = group()
    registry, budget = sessions_of(verifier, 1 << 20)
    session = registry.create(budget, RING).session
    session.append(TOKENS[:30])
    cache = verifier.allocate(WHOLE)
    ranks[1].dies = True
    with pytest.raises(GroupLost, match=r"2 ranks .* rank 1 died"):
        PrefillTurn(session)()
    ranks[1].dies = False
    asked = len(ranks[0].commands)
    for refused in (
        lambda: verifier.allocate(RING),
        lambda: cache.fork(0),
        lambda: cache.truncate(0),
        lambda: verifier.bytes_needed(RING),
        PrefillTurn(session),
    ):
        with pytest.raises(GroupLost):
            refused()
    assert len(ranks[0].commands) == asked
    cache.release()
    registry.close_all()
    assert verifier.pool.used_bytes == 0
    with pytest.raises(SessionNotFound):
        PrefillTurn(session)()


def test_ranks_that_drift_apart_are_noticed_at_once() -> None:
    verifier, ranks = group()
    cache = verifier.allocate(RING)
    own = ranks[1].server._caches[0].cache
    assert isinstance(own, hashing.HashCache)
    own.written = 77
    with pytest.raises(GroupLost, match="rank 1 is in another state"):
        verifier.forward(cache, [1], want_logits=True)


def test_an_answer_that_makes_no_sense_ends_the_group() -> None:
    verifier, ranks = group(1)
    cache = verifier.allocate(RING)
    forward = ranks[0].server._verifiers[0].forward_batch
    replace_method(
        ranks[0].server._verifiers[0], "forward_batch", lambda feeds: forward(feeds)[:-1]
    )
    with pytest.raises(GroupLost, match="0 outputs for 1 feeds"):
        verifier.forward(cache, [1], want_logits=True)
    assert verifier.lost


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda output: Output(output.logits[:, 1:], output.features), "logits have shape"),
        (lambda output: Output(None, output.features), "there are no logits"),
        (lambda output: Output(output.logits, output.features[:1]), "features have shape"),
        (lambda output: Output(output.logits, None), "there are no features"),
    ],
)
def test_numbers_of_another_shape_end_the_group(
    change: Callable[[Output], Output], words: str
) -> None:
    verifier, ranks = group(1)
    cache = verifier.allocate(RING)
    forward = ranks[0].server._verifiers[0].forward_batch
    replace_method(
        ranks[0].server._verifiers[0], "forward_batch", lambda feeds: [change(forward(feeds)[0])]
    )
    with pytest.raises(GroupLost, match=words):
        verifier.forward_batch([Feed(cache, [1, 2], True, (0,))])
    assert verifier.lost


@pytest.mark.parametrize(
    "told",
    [
        {"bytes": "many"},
        {"state": {"pools": [], "caches": [], "slabs": [[0, 7, 1, 1, 0, 0]]}},
        {"state": {"pools": [], "caches": [{"id": 0}], "slabs": []}},
    ],
)
def test_a_state_that_makes_no_sense_ends_the_group(
    told: dict[str, Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier, ranks = group(1)
    cache = verifier.allocate(RING)
    answer = ranks[0].server.answer

    def tampered(message: Message) -> Message:
        said = answer(message)
        return Message({**said.header, **told}, said.arrays)

    monkeypatch.setattr(ranks[0].server, "answer", tampered)
    with pytest.raises(GroupLost, match="rank 0 says what makes no sense"):
        verifier.bytes_needed(RING)
    assert verifier.lost
    cache.release()


def test_a_command_that_is_broken_off_ends_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 has it and rank 1 has not: an answer to the next would be one to this."""
    verifier, ranks = group()
    cache = verifier.allocate(RING)

    def broken_off(_message: Message) -> Never:
        raise KeyError

    with monkeypatch.context() as patched:
        patched.setattr(ranks[1], "send", broken_off)
        with pytest.raises(KeyError):
            verifier.forward(cache, [1], want_logits=True)
    with pytest.raises(GroupLost, match="broken off"):
        verifier.forward(cache, [1], want_logits=True)
