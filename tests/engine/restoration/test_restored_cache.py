"""One restored cache: any course of events, failed forwards, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch.utils._python_dispatch import TorchDispatchMode

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.cache import CacheSpec, KvCache
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.errors import RestorerLost, RestorerRefused
from kakeya_fleet.engine.kv.group_store import GroupStore, kv_pool
from kakeya_fleet.engine.kv.slab_cache import SlabCache
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support import restored_caches as caches
from tests.support.breadth import again, wide
from tests.support.forwards import logits_of

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)
LENGTH = 110
CONTEXT = 40_000
SHAPES = ((3, 16), (0, 5), (4, 40), (70, 7))
PACKED = RestorerSpec(RestorerKind.ARCHIVE, codec="kvarn4")
PACKED_LENGTH = 300
PACKED_SHAPES = ((0, 11), (64, 16), (128, 40))
"""Sinks of whole tiles."""


@pytest.fixture(scope="module")
def verifier(random_checkpoint: Callable[..., Path]) -> Verifier:
    path = random_checkpoint("Qwen3_5ForCausalLM")
    return load_verifier(ModelFolder(path, "random"), backend="torch")


class Rows(dict[tuple[int, int], np.ndarray]):
    """Logits of a history, by sink and window; computed once they are asked for."""

    def __init__(
        self, shapes: Sequence[tuple[int, int]], run: Callable[[tuple[int, int]], np.ndarray]
    ) -> None:
        super().__init__()
        self.shapes, self._run = shapes, run

    def __missing__(self, shape: tuple[int, int]) -> np.ndarray:
        self[shape] = rows = self._run(shape)
        return rows


@pytest.fixture(scope="module")
def expected(verifier: Verifier) -> Rows:
    """The logits of the history for each sink and window: one at a time where it is past both."""

    def run(shape: tuple[int, int]) -> np.ndarray:
        single = range(max(0, sum(shape) - 16), sum(shape) + 3)
        return straight(verifier, caches.restored(*shape), LENGTH, single)

    return Rows(SHAPES, run)


@pytest.fixture(scope="module")
def packed(verifier: Verifier) -> Rows:
    """The same of packed caches: one at a time while the first tile leaves the window."""

    def run(shape: tuple[int, int]) -> np.ndarray:
        leaves = sum(shape) + TILE - 1
        spec = caches.restored(*shape, PACKED)
        return straight(verifier, spec, PACKED_LENGTH, range(leaves - 4, leaves + 8))

    return Rows(PACKED_SHAPES, run)


def straight(verifier: Verifier, spec: CacheSpec, length: int, single: range) -> np.ndarray:
    """In blocks of 16, but those at the positions `single`."""
    store = TorchEvictedStore(verifier.evicted_shape(spec), restorer_of(spec), kv_pool())
    cache = verifier.allocate(spec, store)
    parts = ((0, single.start, 16), (single.start, single.stop, 1), (single.stop, length, 16))
    rows = [
        caches.run(verifier, cache, caches.HISTORY[first:end], [size])
        for first, end, size in parts
        if first < end
    ]
    cache.release()
    return np.concatenate(rows)


def restorer_of(spec: CacheSpec) -> RestorerSpec:
    assert spec.restorer is not None
    return spec.restorer


class Courses(RuleBasedStateMachine):
    """Caches of one history: each row of logits is that of the straight course, bit for bit."""

    verifier: Verifier
    helpers: ModuleType
    expected: Rows
    restorer: RestorerSpec
    length: int

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.shape = data.draw(st.sampled_from(self.expected.shapes))
        self.spec = self.helpers.restored(*self.shape, restorer=self.restorer)
        self.caches: list[KvCache] = [self.new()]

    def new(self, evicted: Any = None) -> KvCache:
        if evicted is None:
            shape = self.verifier.evicted_shape(self.spec)
            evicted = TorchEvictedStore(shape, self.restorer, kv_pool())
        return self.verifier.allocate(self.spec, evicted)

    def fed(self, cache: KvCache, right: int, wrong: int) -> tuple[Feed, int]:
        """The next tokens of the history and then others, as many as there may be."""
        start = cache.length
        kept = max(1, min(right, cache.widest, self.length - start))
        tokens = self.helpers.HISTORY[start : start + kept]
        wrong = min(wrong, cache.widest - kept)
        return Feed(cache, [*tokens, *[(tokens[-1] + 1) % 96] * wrong], want_logits=True), kept

    def check(self, logits: np.ndarray | None, start: int, kept: int) -> None:
        assert logits is not None
        rows = self.expected[self.shape][start : start + kept]
        assert logits[:kept].tobytes() == rows.tobytes(), (self.shape, start, kept)

    def usable(self, which: int) -> KvCache | None:
        cache = self.caches[which % len(self.caches)]
        return cache if cache.length < self.length else None

    @rule(which=st.integers(0, 9), right=st.integers(1, 16), wrong=st.integers(0, 15))
    def draft(self, which: int, right: int, wrong: int) -> None:
        cache = self.usable(which)
        if cache is not None:
            start = cache.length
            feed, kept = self.fed(cache, right, wrong)
            self.check(self.verifier.forward_batch([feed])[0].logits, start, kept)
            cache.truncate(start + kept)

    @rule(which=st.integers(0, 9), count=st.integers(10, 120))
    def read(self, which: int, count: int) -> None:
        cache = self.usable(which)
        while cache is not None and count > 0 and cache.length < self.length:
            feed, kept = self.fed(cache, count, 0)
            self.verifier.forward_batch([feed])
            count -= kept

    @rule(which=st.integers(0, 9), other=st.integers(0, 9), right=st.integers(1, 16))
    def share_a_forward(self, which: int, other: int, right: int) -> None:
        chosen = {id(cache): cache for cache in (self.usable(which), self.usable(other)) if cache}
        if chosen:
            starts = [cache.length for cache in chosen.values()]
            feeds, kept = zip(
                *(self.fed(cache, right, 3) for cache in chosen.values()), strict=True
            )
            outputs = self.verifier.forward_batch(feeds)
            for output, cache, start, count in zip(
                outputs, chosen.values(), starts, kept, strict=True
            ):
                self.check(output.logits, start, count)
                cache.truncate(start + count)

    @precondition(lambda self: len(self.caches) < 4)
    @rule(which=st.integers(0, 9), back=st.integers(0, 60), wrong=st.integers(0, 15))
    def fork(self, which: int, back: int, wrong: int) -> None:
        cache = self.caches[which % len(self.caches)]
        length = max(cache.forkable_from, cache.length - back)
        forked = cache.fork(length)
        self.caches.append(forked)
        if wrong:
            # The source goes another way; the fork must not hear of it.
            for _ in range(4):
                self.verifier.forward(cache, [1] * min(wrong, cache.widest), want_logits=False)
            self.caches.remove(cache)
            cache.release()

    @rule(which=st.integers(0, 9))
    def lose(self, which: int) -> None:
        cache = self.caches.pop(which % len(self.caches))
        cache.release()
        self.caches.append(self.new())

    @rule(which=st.integers(0, 9), back=st.integers(0, 200))
    def begin_anew_over_a_fork_of_the_store(self, which: int, back: int) -> None:
        cache = self.caches[which % len(self.caches)]
        if cache.evicted is not None:
            anew = self.new(cache.evicted.fork(max(0, cache.length - back)))
            # Behind `back` it may go its own way, which here is the same.
            self.caches[which % len(self.caches)] = anew
            cache.release()

    @rule(which=st.integers(0, 9), after=st.integers(0, 2))
    def fail(self, which: int, after: int) -> None:
        """A forward of wrong tokens that fails between its layers."""
        cache = self.usable(which)
        if cache is None:
            return
        start = cache.length
        with pytest.MonkeyPatch.context() as patched, pytest.raises(MemoryError):
            patched.setattr(SlabCache, "read", failing(SlabCache.read, after))
            self.verifier.forward(cache, [1] * cache.widest, want_logits=True)
            self.verifier.forward(cache, [1] * cache.widest, want_logits=True)
            self.verifier.forward(cache, [1] * cache.widest, want_logits=True)
        if cache.length > start:
            # Whole forwards of wrong tokens went before it.
            self.caches.remove(cache)
            cache.release()
            self.caches.append(self.new())

    @invariant()
    def memory_is_what_was_foretold(self) -> None:
        for cache in getattr(self, "caches", []):
            assert cache.memory_bytes == self.verifier.bytes_needed(self.spec)

    def teardown(self) -> None:
        for cache in getattr(self, "caches", []):
            cache.release()


def failing(read: Callable[..., Any], after: int) -> Callable[..., Any]:
    left = [after]

    def reading(self: Any, *arguments: Any) -> Any:
        if not left[0]:
            raise MemoryError
        left[0] -= 1
        return read(self, *arguments)

    return reading


@again(2)
@pytest.mark.parametrize("is_packed", [False, True], ids=["as they lie", "packed"])
def test_every_course_of_events_gives_the_bits_of_the_history(
    verifier: Verifier, expected: Rows, packed: Rows, is_packed: bool
) -> None:
    Courses.verifier, Courses.helpers = verifier, caches
    Courses.expected = packed if is_packed else expected
    Courses.restorer = PACKED if is_packed else ARCHIVE
    Courses.length = PACKED_LENGTH if is_packed else LENGTH
    before = verifier.pool.used_bytes
    case = Courses.TestCase
    case.settings = settings(deadline=None, max_examples=6, stateful_step_count=12)
    case().runTest()
    assert verifier.pool.used_bytes == before


@pytest.mark.parametrize("kept", [99, wide(96), 90])
def test_a_failed_forward_leaves_nothing_behind(
    verifier: Verifier,
    expected: Rows,
    monkeypatch: pytest.MonkeyPatch,
    kept: int,
) -> None:
    """The failed one has evicted more than any before, of the history that is kept."""
    spec, tokens = caches.restored(3, 16), caches.HISTORY
    cache, other = verifier.allocate(spec), verifier.allocate(spec)
    caches.run(verifier, cache, tokens[:99], [9])
    caches.run(verifier, other, tokens[:30], [9])
    cache.truncate(kept)
    for after in (0, 1):
        with monkeypatch.context() as patched, pytest.raises(MemoryError):
            patched.setattr(SlabCache, "read", failing(SlabCache.read, after))
            verifier.forward_batch(
                [Feed(cache, [7] * 16, want_logits=True), Feed(other, [8, 9], want_logits=True)]
            )
        assert cache.length == kept
        with pytest.raises(ValueError, match="cannot keep"):
            cache.truncate(kept - 1)
    rows = expected[3, 16]
    for one, start in ((cache.fork(kept), kept), (cache, kept), (other, 30)):
        got = caches.run(verifier, one, tokens[start : start + 10], [5])
        assert got.tobytes() == rows[start : start + 10].tobytes()


def test_a_deposit_is_final_before_the_forward_that_fails(
    verifier: Verifier, expected: Rows
) -> None:
    """What was handed over cannot be cut off any more, by whoever the forward failed."""
    spec = caches.restored(0, 5)
    cache, other = verifier.allocate(spec), verifier.allocate(spec)
    for one in (cache, other):
        caches.run(verifier, one, caches.HISTORY[:50], [5])
    assert other.evicted is not None
    other.evicted.release()
    with pytest.raises(RestorerLost):
        verifier.forward_batch(
            [Feed(cache, [7] * 5, want_logits=True), Feed(other, [8], want_logits=True)]
        )
    assert cache.evicted is not None
    assert cache.evicted.length == 50
    with pytest.raises(ValueError, match="cannot keep"):
        cache.truncate(49)
    got = caches.run(verifier, cache, caches.HISTORY[50:80], [3])
    assert got.tobytes() == expected[0, 5][50:80].tobytes()


def test_what_a_failed_forward_asked_for_is_dropped(verifier: Verifier, expected: Rows) -> None:
    """One session's store answers while that of the other is lost."""
    spec = caches.restored(3, 16, ARCHIVE)
    shape = verifier.evicted_shape(spec)
    fragile = caches.FragileStore(TorchEvictedStore(shape, ARCHIVE, kv_pool()), 1 << 30)
    cache = verifier.allocate(spec, TorchEvictedStore(shape, ARCHIVE, kv_pool()))
    other = verifier.allocate(spec, fragile)
    for one in (cache, other):
        caches.run(verifier, one, caches.HISTORY[:50], [16])
    # The deposit before the forward is the last call that it answers.
    fragile.calls = 1
    with pytest.raises(RestorerLost):
        verifier.forward_batch(
            [Feed(cache, [7] * 5, want_logits=True), Feed(other, [8], want_logits=True)]
        )
    got = caches.run(verifier, cache, caches.HISTORY[50:80], [5])
    assert got.tobytes() == expected[3, 16][50:80].tobytes()


class LateStore(TorchEvictedStore):
    """Keeps what was deposited one position further on than it is."""

    _last: tuple[Any, ...] = ()

    def deposit(self, first: int, evicted: Any) -> None:
        last = self._last or tuple(array[:, :, :, :1] for array in evicted.groups)
        shifted = tuple(
            np.concatenate([before, array[:, :, :, :-1]], axis=3)
            for before, array in zip(last, evicted.groups, strict=True)
        )
        self._last = tuple(array[:, :, :, -1:].copy() for array in evicted.groups)
        super().deposit(first, type(evicted)(shifted))


class ForgetfulStore(TorchEvictedStore):
    """Keeps nothing but zeros."""

    def deposit(self, first: int, evicted: Any) -> None:
        super().deposit(first, type(evicted)(tuple(array * 0 for array in evicted.groups)))


@pytest.mark.parametrize("kind", [LateStore, ForgetfulStore])
def test_a_store_that_is_late_or_forgets_shows(
    verifier: Verifier, expected: Rows, kind: type[TorchEvictedStore]
) -> None:
    spec = caches.restored(3, 16, ARCHIVE)
    store = kind(verifier.evicted_shape(spec), ARCHIVE, kv_pool())
    cache = verifier.allocate(spec, store)
    got = caches.run(verifier, cache, caches.HISTORY[:LENGTH], [16])
    rows = expected[3, 16]
    assert got[:19].tobytes() == rows[:19].tobytes()
    assert np.abs(got - rows)[30:].max() > 1e-2


def test_numbers_that_are_not_finite_are_refused_and_survived(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = verifier.allocate(caches.restored(3, 16))
    caches.run(verifier, cache, caches.HISTORY[:40], [16])

    def spoilt(self: GroupStore[Any], first: int, end: int) -> Any:
        found = leaving(self, first, end)
        found[0, 1, 0, 0, 0] = np.nan
        return found

    leaving = GroupStore.positions
    with monkeypatch.context() as patched, pytest.raises(RestorerRefused):
        patched.setattr(GroupStore, "positions", spoilt)
        verifier.forward(cache, caches.HISTORY[40:56], want_logits=True)
    straight = verifier.allocate(caches.restored(3, 16))
    caches.run(verifier, straight, caches.HISTORY[:40], [16])
    tail = caches.HISTORY[40:56]
    got, wanted = (logits_of(verifier, one, tail) for one in (cache, straight))
    assert got is not None
    assert wanted is not None
    assert got.tobytes() == wanted.tobytes()


class Made(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Notes the largest tensor of a forward, and all bytes that are made at a time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.largest = 0

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = operator(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor) and not tensor._is_view():
                self.largest = max(self.largest, tensor.nbytes)
        return made


@pytest.mark.parametrize("count", [1, 16])
def test_a_forwards_peak_and_the_caches_bytes_do_not_grow_with_the_context(
    random_checkpoint: Callable[..., Path], count: int
) -> None:
    path = random_checkpoint(num_hidden_layers=1, max_position_embeddings=CONTEXT)
    verifier = load_verifier(ModelFolder(path, "long"), backend="torch")
    spec = caches.restored(4, 60)
    largest, held, stored = [], [], []
    for context in (2 * CHUNK_KEYS, 4 * CHUNK_KEYS):
        cache = verifier.allocate(spec)
        cache.fill(context, seed=0)
        verifier.forward(cache, [1] * count, want_logits=False)
        with Made() as made:
            verifier.forward(cache, [1] * count, want_logits=False)
        largest.append(made.largest)
        held.append(cache.memory_bytes)
        assert cache.evicted is not None
        stored.append(cache.evicted.stored_bytes)
        cache.release()
    assert largest[0] == largest[1] <= CHUNK_KEYS * 4 * max(2, count) * 4
    assert held[0] == held[1] == verifier.bytes_needed(spec)
    # 128 slots, however long the history.
    assert held[0] == 128 * verifier.info.kv_bytes_per_token
    assert stored[1] > 1.9 * stored[0]
