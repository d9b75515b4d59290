"""Spot checks: an honest archive passes bit for bit, a liar of any kind does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from kakeya_fleet.engine.backends.torch_backend.archive_stores import TorchArchiveStores
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    EvictedKeysValues,
    EvictedQueries,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.restoration.ranges import KeepingStore
from kakeya_fleet.node.roles.archive.answer_audit import (
    AnswerAudit,
    AnswerSample,
    Auditing,
    AuditOutcome,
    UsedAnswer,
    distance,
)
from kakeya_fleet.node.roles.archive.position_tags import KeptTags, PositionTagger
from kakeya_fleet.node.roles.archive.store_audits import AuditWay, StoreAudits
from tests.support import evicted_stores

BUDGET = 64 << 20
LAYER = 2
LENGTH = CHUNK_KEYS + 700
"""Of two chunks, the second of which is not whole."""


@pytest.fixture(params=["float32", "bfloat16"])
def shape(request: pytest.FixtureRequest) -> EvictedShape:
    made = evicted_stores.small_shape(request.param)
    return replace(made, context_length=2 * CHUNK_KEYS)


def filled(shape: EvictedShape, length: int) -> KeepingStore:
    store = TorchArchiveStores(BUDGET).make(shape, evicted_stores.ARCHIVE)
    evicted = evicted_stores.random_evicted(shape, length - shape.sink, seed=1)
    for first in range(shape.sink, length, 4000):
        end = min(length, first + 4000)
        own = evicted_stores.part(evicted, first - shape.sink, end - shape.sink)
        store.deposit(first, own)
    return store


def answer_of(store: KeepingStore, shape: EvictedShape, first: int, count: int) -> UsedAnswer:
    asked = evicted_stores.random_queries(shape, LAYER, first, count, seed=2)
    store.begin(asked)
    end = min(store.length, first + count - shape.window)
    return UsedAnswer(asked, None, store.finish(), end)


def audited(
    store: KeepingStore, shape: EvictedShape, answer: UsedAnswer, arithmetic: str = ""
) -> AuditOutcome:
    stores = TorchArchiveStores(BUDGET)
    audit = AnswerAudit(
        Auditing(stores, 1), answer, shape.layer_shape(LAYER), 0, arithmetic or stores.arithmetic
    )
    while audit.wanted:
        audit.add(store.kept(LAYER, audit.wanted.start, audit.wanted.stop))
    assert not stores.used_bytes
    return audit.outcome()


@pytest.mark.parametrize(("first", "count"), [(LENGTH, 1), (LENGTH - 9, 20), (8, 14), (600, 3)])
def test_an_honest_answer_is_found_bit_for_bit(shape: EvictedShape, first: int, count: int) -> None:
    store = filled(shape, LENGTH)
    answer = answer_of(store, shape, first, count)
    assert audited(store, shape, answer) is AuditOutcome.PASSED


def test_answers_about_packed_tiles_are_found_bit_for_bit_and_false_ones_are_not() -> None:
    plain = evicted_stores.small_shape("bfloat16", sink=64, head_dims=(8, 16))
    shape = replace(plain, codec="kvarn4", context_length=2 * CHUNK_KEYS)
    store = TorchArchiveStores(BUDGET).make(
        shape, RestorerSpec(RestorerKind.ARCHIVE, codec=shape.codec)
    )
    # Into a second chunk.
    length = CHUNK_KEYS + 3 * shape.tile
    store.deposit(shape.sink, evicted_stores.random_evicted(shape, length - shape.sink, seed=1))
    asked = evicted_stores.random_queries(shape, LAYER, length, 2, seed=2)
    store.begin(asked)
    answer = UsedAnswer(asked, None, store.finish(), shape.evicted_end(length + 1))
    assert audited(store, shape, answer) is AuditOutcome.PASSED
    false = replace(answer, found=replace(answer.found, output=-answer.found.output))
    assert audited(store, shape, false) is AuditOutcome.FAILED


Lie = Callable[[PartialAttention], PartialAttention]


def _one_less_seen(part: PartialAttention) -> PartialAttention:
    return replace(part, output=part.output * np.float32(0.95), total=part.total * np.float32(0.9))


@pytest.mark.parametrize(
    "lie",
    [
        lambda part: replace(part, output=-part.output),
        lambda part: replace(part, output=part.output * 0),
        lambda part: replace(part, total=part.total * 2),
        lambda part: replace(part, maximum=part.maximum + 1),
        lambda part: replace(part, output=part.output[:, :, ::-1].copy()),
        _one_less_seen,
    ],
    ids=["flipped signs", "zeros", "another total", "another maximum", "mixed", "fewer seen"],
)
def test_a_false_answer_is_found(shape: EvictedShape, lie: Lie) -> None:
    store = filled(shape, 300)
    honest = answer_of(store, shape, 300, 4)
    false = replace(honest, found=lie(honest.found))
    assert audited(store, shape, false) is AuditOutcome.FAILED
    assert audited(store, shape, false, "another's") is AuditOutcome.FAILED


def test_an_answer_with_a_scale_of_nearly_nothing_is_false(shape: EvictedShape) -> None:
    store = filled(shape, 300)
    honest = answer_of(store, shape, 300, 4)
    store.begin(replace(honest.asked, scaling=1e-9))
    false = replace(honest, found=store.finish())
    assert audited(store, shape, false) is AuditOutcome.FAILED


def test_other_rounding_accuses_nobody_and_is_counted(shape: EvictedShape) -> None:
    store = filled(shape, 300)
    honest = answer_of(store, shape, 300, 4)
    found = replace(honest.found, output=honest.found.output * np.float32(1 + 2.0**-20))
    assert 0.0 < distance(honest.found, found) < 2.0**-18
    near = replace(honest, found=found)
    assert audited(store, shape, near) is AuditOutcome.ROUNDED
    assert audited(store, shape, near, "another's") is AuditOutcome.PASSED


def test_the_audited_answer_may_be_any() -> None:
    """Of 20 offered, each is taken by one sample in 20, but for 5 standard deviations."""
    shape = evicted_stores.small_shape()
    asked = evicted_stores.random_queries(shape, 0, 4, 1, seed=0)
    nothing = evicted_stores.NaiveEvictedStore(shape)
    nothing.begin(asked)
    part = nothing.finish()
    rounds, offers = 2000, 20
    taken = np.zeros(offers)
    for _ in range(rounds):
        sample = AnswerSample()
        for index in range(offers):
            sample.offer(UsedAnswer(asked, None, part, index))
        answer = sample.take()
        assert answer is not None
        taken[answer.end] += 1
        assert sample.take() is None
    mean = rounds / offers
    assert np.abs(taken - mean).max() < 5 * mean**0.5


def test_a_liar_is_found_within_the_stated_number_of_answers() -> None:
    """One that lies in one answer of four: 1 - (1 - f)^(n - 1) for n intervals, all but 1e-6."""
    shape = evicted_stores.small_shape()
    store = filled(shape, 300)
    honest = answer_of(store, shape, 300, 1)
    false = replace(honest, found=replace(honest.found, output=-honest.found.output))
    outcomes: list[AuditOutcome] = []
    stores = TorchArchiveStores(BUDGET)
    every = 4
    way = AuditWay(Auditing(stores, every), stores.arithmetic, outcomes.append)
    audits = StoreAudits(way, shape, 0)
    # ln(1e-6) / ln(1 - 1/4) = 48 intervals, of one piece each, and the one before.
    most = (48 + 1) * every
    for number in range(most):
        audits.answered(false if number % 4 == 0 else honest)
        due = audits.due()
        if due and not audits.add(store.kept(LAYER, due.start, due.stop)):
            break
    assert outcomes[-1] is AuditOutcome.FAILED
    assert set(outcomes[:-1]) <= {AuditOutcome.PASSED}
    assert audits.passed_count == len(outcomes) - 1


def test_an_audit_without_memory_is_counted_and_accuses_nobody() -> None:
    shape = evicted_stores.small_shape()
    store = filled(shape, 300)
    outcomes: list[AuditOutcome] = []
    way = AuditWay(Auditing(TorchArchiveStores(1000), 1), "", outcomes.append)
    audits = StoreAudits(way, shape, 0)
    audits.answered(answer_of(store, shape, 300, 1))
    due = audits.due()
    assert audits.add(store.kept(LAYER, due.start, due.stop))
    assert outcomes == [AuditOutcome.NO_ROOM]
    audit = AnswerAudit(
        way.auditing, answer_of(store, shape, 300, 1), shape.layer_shape(LAYER), 0, ""
    )
    with pytest.raises(OutOfKvMemory):
        audit.add(store.kept(LAYER, audit.wanted.start, audit.wanted.stop))


@pytest.mark.parametrize("codec", ["", "kvarn4"])
def test_tags_know_numbers_and_their_place(codec: str) -> None:
    shape = replace(evicted_stores.small_shape(sink=64, head_dims=(8, 16)), codec=codec)
    step = shape.tile
    tagger = PositionTagger()
    whole = evicted_stores.random_evicted(shape, 10 * step, seed=0)
    assert tagger.tags(shape, shape.sink, whole).shape == (3, 10)
    tags = tagger.tags(shape, shape.sink, whole)[1:2]
    own = EvictedKeysValues((whole.groups[0][1:2],))
    layer = shape.layer_shape(LAYER)
    assert tagger.fit(layer, shape.sink, own, tags)
    later = layer.part(own, 5 * step, 9 * step)
    assert isinstance(later, EvictedKeysValues)
    assert tagger.fit(layer, shape.sink + 5 * step, later, tags[:, 5:9])
    assert not PositionTagger().fit(layer, shape.sink, own, tags)
    assert not tagger.fit(shape.layer_shape(0), shape.sink, own, tags)
    assert not tagger.fit(layer, shape.sink + 1, own, tags)
    (numbers,) = own.groups
    for flat in (0, 7, numbers.nbytes - 1):
        altered = numbers.copy()
        altered.reshape(-1).view(np.uint8)[flat] ^= 1
        assert not tagger.fit(layer, shape.sink, EvictedKeysValues((altered,)), tags)


def test_an_archive_gives_back_the_tags_that_it_was_given() -> None:
    rng = np.random.default_rng(0)
    tags = rng.integers(0, 2**63, (2, 1000)).astype(np.uint64)
    kept = KeptTags((0, 5), first=3)
    for first in range(0, 1000, 70):
        kept.add(tags[:, first : first + 70])
    assert np.array_equal(kept.of(5, 3, 1000), tags[1])
    assert kept.nbytes <= tags.nbytes * 3 / 2
    forked = kept.fork(503)
    kept.add(tags[:, :10])
    forked.add(tags[:, 900:])
    assert np.array_equal(forked.of(0, 3, 600), np.hstack([tags[0, :500], tags[0, 900:]]))
    assert np.array_equal(kept.of(0, 3, 1010)[1000:], tags[0, :10])


def test_queries_of_nothing_scale_are_refused(shape: EvictedShape) -> None:
    store = filled(shape, 100)
    asked = evicted_stores.random_queries(shape, LAYER, 100, 1, seed=0)
    zero: EvictedQueries = replace(asked, scaling=0.0)
    with pytest.raises(Exception, match=r"multiplied by 0\.0"):
        store.begin(zero)
