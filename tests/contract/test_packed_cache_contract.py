"""Caches that keep all positions, those behind the window in few bits: one stream, fewer bytes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, KvLayout
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.errors import (
    BadParameters,
    ContextExceeded,
    KvStrategyUnsupported,
    OutOfKvMemory,
)
from kakeya_fleet.engine.kv.states import HeldStates
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from tests.support import restored_caches as caches
from tests.support.breadth import all_wide_but, wide
from tests.support.small_verifiers import COMPILED, tried_on

GROWING = CacheSpec(
    CacheKind.PACKED, capacity=900, sink=TILE, window=TILE, codec="kvarn4", grows=True
)
WHOLE = dataclasses.replace(GROWING, grows=False)
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=900)
TEXT = [(17 * index + index * index // 3) % 96 for index in range(424)]
# Of a whole step across the border of a tile that leaves the window.
SIZES = ([1], [64], [5, 63, 1], [16, 7])
MIXED = SIZES[2]


@pytest.fixture(scope="module")
def straight(verifier: Verifier) -> np.ndarray:
    """The logits of the text in blocks of 16."""
    cache = verifier.allocate(GROWING)
    found = caches.run(verifier, cache, TEXT, [16])
    cache.release()
    return found


@pytest.mark.parametrize(
    ("spec", "sizes"),
    all_wide_but(
        [(GROWING, SIZES[-1]), (WHOLE, MIXED)],
        [*((GROWING, sizes) for sizes in SIZES), (WHOLE, MIXED)],
        several=True,
    ),
    ids=[*(f"growing-{sizes}" for sizes in SIZES), f"whole-{MIXED}"],
)
def test_blocks_and_when_memory_is_taken_change_no_bit(
    verifier: Verifier, straight: np.ndarray, spec: CacheSpec, sizes: list[int]
) -> None:
    cache = verifier.allocate(spec)
    # One at a time where the first tile fills, and where the first and the second are packed.
    first, count = (TILE - 8, 3 * TILE + 10) if sizes == [1] else (0, len(TEXT))
    if first:
        caches.run(verifier, cache, TEXT[:first], [16])
    found = caches.run(verifier, cache, TEXT[first:count], sizes)
    assert found.tobytes() == straight[first:count].tobytes()
    cache.release()


@pytest.mark.parametrize("verifier", tried_on("torch", COMPILED), indirect=True)
def test_drafts_that_are_taken_back_change_no_bit(verifier: Verifier, straight: np.ndarray) -> None:
    """A rejected block lies across the border where the tile before it would have left."""
    cache = verifier.allocate(GROWING)
    done = 0
    rows = []
    while done < len(TEXT):
        count = min(15, len(TEXT) - done)
        wrong = [*TEXT[done : done + count // 2], *[1] * (15 - count // 2)]
        assert verifier.forward(cache, wrong, want_logits=True) is not None
        cache.truncate(done)
        logits = verifier.forward(cache, TEXT[done : done + count], want_logits=True)
        assert logits is not None
        rows.append(logits)
        done += count
    assert np.concatenate(rows).tobytes() == straight.tobytes()
    cache.release()


def test_it_is_near_what_is_not_packed_and_attends_to_all(
    verifier: Verifier, straight: np.ndarray
) -> None:
    whole = verifier.allocate(FULL)
    full = caches.run(verifier, whole, TEXT, [16])
    # Nothing is packed yet.
    early, of_full = straight[: 2 * TILE], full[: 2 * TILE]
    np.testing.assert_allclose(early, of_full, atol=1e-4 * np.abs(full).max())
    forgetting = verifier.allocate(CacheSpec(CacheKind.SINK_WINDOW, sink=TILE, window=TILE))
    window = caches.run(verifier, forgetting, TEXT, [16])
    packed_apart = np.abs(straight - full)[3 * TILE :].mean()
    window_apart = np.abs(window - full)[3 * TILE :].mean()
    assert 0 < packed_apart < window_apart / 3
    for cache in (whole, forgetting):
        cache.release()


def test_it_is_what_a_restored_cache_of_this_process_finds(
    verifier: Verifier, straight: np.ndarray, request: pytest.FixtureRequest
) -> None:
    """To the bit where both are computed alike: the compiled decoder has one of its own."""
    here = RestorerSpec(RestorerKind.IDENTITY, codec="kvarn4")
    spec = CacheSpec(CacheKind.RESTORED, sink=TILE, window=TILE, restorer=here)
    cache = verifier.allocate(spec)
    restored = caches.run(verifier, cache, TEXT, [16])
    if COMPILED in request.node.callspec.id:
        np.testing.assert_allclose(restored, straight, atol=1e-3 * np.abs(straight).max())
    else:
        assert restored.tobytes() == straight.tobytes()
    cache.release()


@pytest.mark.parametrize("verifier", tried_on("torch", COMPILED), indirect=True)
def test_its_bytes_are_those_of_few_bits_and_follow_the_history(verifier: Verifier) -> None:
    before = verifier.pool.used_bytes
    cache = verifier.allocate(GROWING)
    ring = cache.memory_bytes
    assert ring == verifier.bytes_needed(GROWING)
    assert cache.growth_bytes(2 * TILE) == 0
    tiles = 256 // TILE
    grows = cache.growth_bytes(3 * TILE)
    group_bytes = sum(
        len(group.layers)
        * group.shape.kv_heads
        * codec_named("kvarn4").tile_bytes(group.shape.head_dim)
        for group in verifier.evicted_shape(GROWING).groups
    )
    assert grows == tiles * group_bytes
    caches.run(verifier, cache, TEXT, [64])
    assert cache.reach >= len(TEXT)
    packed_end = (len(TEXT) - 1 - TILE + 1) // TILE * TILE
    assert cache.evicted is not None
    assert cache.evicted.length == packed_end
    assert cache.memory_bytes == ring + -(-packed_end // 256) * grows
    assert verifier.pool.used_bytes == before + cache.memory_bytes
    assert sum(slab.nbytes for slab in cache.slabs) == cache.memory_bytes == cache.freed_bytes
    cache.release()
    assert verifier.pool.used_bytes == before
    whole = verifier.allocate(WHOLE)
    assert whole.memory_bytes == verifier.bytes_needed(WHOLE) > ring
    assert (whole.reach, whole.growth_bytes(800)) == (900, 0)
    whole.release()


@pytest.mark.parametrize("verifier", tried_on("torch", COMPILED), indirect=True)
@pytest.mark.parametrize(
    ("spec", "at"),
    [
        (GROWING, 2 * TILE - 1),
        wide(GROWING, 4 * TILE + 3),
        (GROWING, 5 * TILE),
        (WHOLE, 4 * TILE + 3),
    ],
    ids=["growing-127", "growing-259", "growing-320", "whole-259"],
)
def test_forks_share_what_is_packed_and_go_their_own_ways(
    verifier: Verifier, straight: np.ndarray, spec: CacheSpec, at: int
) -> None:
    before = verifier.pool.used_bytes
    origin = verifier.allocate(spec)
    caches.run(verifier, origin, TEXT[:at], [16])
    used, promised = verifier.pool.used_bytes, origin.fork_bytes(at)
    fork = origin.fork(at)
    assert verifier.pool.used_bytes == used + promised
    # The origin goes astray; the fork, and a fork of it, do not notice.
    caches.run(verifier, origin, [1] * 200, [16])
    assert caches.run(verifier, fork, TEXT[at:400], [7, 31]).tobytes() == straight[at:400].tobytes()
    again = fork.fork(400)
    origin.release()
    fork.release()
    assert caches.run(verifier, again, TEXT[400:], [33]).tobytes() == straight[400:].tobytes()
    again.release()
    assert verifier.pool.used_bytes == before


def test_sessions_in_one_forward_keep_their_bits(verifier: Verifier, straight: np.ndarray) -> None:
    """Beside one that is not packed, and one that is elsewhere in its history."""
    packed, other, plain = (verifier.allocate(spec) for spec in (GROWING, WHOLE, FULL))
    caches.run(verifier, packed, TEXT[: 4 * TILE], [16])
    caches.run(verifier, other, TEXT[: 5 * TILE + 9], [16])
    caches.run(verifier, plain, TEXT[:30], [16])
    feeds = [
        Feed(plain, TEXT[30:34], want_logits=True),
        Feed(packed, TEXT[4 * TILE : 4 * TILE + 5], want_logits=True),
        Feed(other, TEXT[5 * TILE + 9 : 5 * TILE + 14], want_logits=True),
    ]
    _, first, second = verifier.forward_batch(feeds)
    assert first.logits is not None
    assert second.logits is not None
    assert first.logits.tobytes() == straight[4 * TILE : 4 * TILE + 5].tobytes()
    assert second.logits.tobytes() == straight[5 * TILE + 9 : 5 * TILE + 14].tobytes()
    for cache in (packed, other, plain):
        cache.release()


@pytest.mark.parametrize("verifier", tried_on("torch", COMPILED), indirect=True)
def test_without_room_to_grow_nothing_is_written_and_the_bits_go_on(
    verifier: Verifier, straight: np.ndarray
) -> None:
    cache = verifier.allocate(GROWING)
    caches.run(verifier, cache, TEXT[: 3 * TILE], [16])
    budget = verifier.pool.budget_bytes
    held = cache.memory_bytes
    verifier.pool.budget_bytes = verifier.pool.used_bytes
    try:
        caches.run(verifier, cache, TEXT[3 * TILE : 4 * TILE + TILE], [16])
        with pytest.raises(OutOfKvMemory):
            caches.run(verifier, cache, TEXT[5 * TILE :], [16])
        assert cache.memory_bytes == held
    finally:
        verifier.pool.budget_bytes = budget
    done = cache.length
    assert caches.run(verifier, cache, TEXT[done:], [16]).tobytes() == straight[done:].tobytes()
    cache.release()


@pytest.mark.parametrize("verifier", tried_on("torch", COMPILED), indirect=True)
def test_a_session_that_rested_has_its_packed_bytes_and_tokens_again(verifier: Verifier) -> None:
    """Within its promises: bytes that were taken before it rested count for nothing after."""
    used = verifier.pool.used_bytes
    session = Session.allocate(verifier, GROWING)
    session.append(TEXT[:200])

    def spoken(count: int) -> list[int]:
        while PrefillTurn(session)():
            pass
        block = Block([], GREEDY, 1)
        return [VerifyTurn(session, block)().step.committed[0] for _ in range(count)]

    first = spoken(5)
    taken, fork = session.memory_bytes, session.fork(200)
    assert session.rest()
    assert fork.rest()
    assert verifier.pool.used_bytes == used
    second = spoken(1)
    assert session.memory_bytes == taken
    while PrefillTurn(fork)():
        pass
    again = [VerifyTurn(fork, Block([], GREEDY, 1))().step.committed[0] for _ in range(6)]
    assert again == [*first, *second]
    for each in (session, fork):
        each.end("compared")
    assert verifier.pool.used_bytes == used


@pytest.mark.parametrize("verifier", tried_on("torch", COMPILED), indirect=True)
def test_a_session_that_is_packed_for_want_of_memory_is_as_one_that_was_opened_so(
    verifier: Verifier,
) -> None:
    """Nothing of what it computed before is kept: unpacked keys saw unpacked ones."""
    used = verifier.pool.used_bytes
    sessions = [Session.allocate(verifier, spec) for spec in (GROWING, FULL)]
    packed, plain = sessions
    plain.waking.smaller = GROWING

    def spoken(session: Session) -> list[int]:
        while PrefillTurn(session)():
            pass
        return [VerifyTurn(session, Block([], GREEDY, 1))().step.committed[0] for _ in range(12)]

    for session in sessions:
        session.append(TEXT[:310])
    while PrefillTurn(plain)():
        pass
    plain.shrink()
    assert (plain.memory_bytes, plain.pending) == (0, 309)
    assert spoken(plain) == spoken(packed)
    assert plain.memory_bytes == packed.memory_bytes
    assert plain.spec == packed.spec
    for session in sessions:
        session.end("compared")
    assert verifier.pool.used_bytes == used


def test_what_cannot_be_is_refused_by_name(verifier: Verifier) -> None:
    for change, match in (
        ({"codec": ""}, "needs a codec"),
        ({"codec": "kvarn9"}, "kvarn9"),
        ({"sink": 4}, "multiple"),
        ({"window": 0}, "window"),
        ({"capacity": 0}, "capacity"),
    ):
        with pytest.raises(BadParameters, match=match):
            verifier.allocate(dataclasses.replace(GROWING, **change))
    cache = verifier.allocate(dataclasses.replace(GROWING, capacity=200))
    caches.run(verifier, cache, TEXT[:200], [64])
    with pytest.raises(ContextExceeded):
        verifier.forward(cache, [1], want_logits=False)
    cache.release()


def test_an_allocation_that_fails_late_keeps_nothing(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tiles have their memory when the states of recurrent layers find none."""

    def refuse(*_: object) -> None:
        raise OutOfKvMemory("no room for states")

    before = verifier.pool.used_bytes
    monkeypatch.setattr(HeldStates, "take", refuse)
    with pytest.raises(OutOfKvMemory, match="states"):
        verifier.allocate(WHOLE)
    assert verifier.pool.used_bytes == before


@pytest.mark.parametrize("verifier", tried_on("torch", COMPILED), indirect=True)
def test_filled_with_random_numbers_it_goes_on(verifier: Verifier) -> None:
    """As measuring does: as many tiles as a history of that length has."""
    cache, read = verifier.allocate(GROWING), verifier.allocate(GROWING)
    cache.fill(400, seed=3)
    caches.run(verifier, read, TEXT[:400], [64])
    assert cache.memory_bytes == read.memory_bytes
    logits = verifier.forward(cache, [1, 2], want_logits=True)
    assert logits is not None
    assert np.isfinite(logits).all()
    for each in (cache, read):
        each.release()


def test_a_model_that_forgets_anyhow_packs_nothing() -> None:
    layout = KvLayout((AttentionLayer(1, 1, 64, sliding_window=32),), 1024, 4)
    with pytest.raises(KvStrategyUnsupported, match="no layer of this model sees all"):
        layout.check(GROWING)
