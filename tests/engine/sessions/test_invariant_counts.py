from __future__ import annotations

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.positions import attends
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from tests.support import hash_verifier as hashing

WINDOWED = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)


def new_session(hashing, spec=WINDOWED) -> Session:
    verifier = hashing.HashVerifier()
    return Session(verifier, verifier.allocate(spec))


def counts(session):
    assert all(each.violation_count == 0 for each in session.invariants)
    return {each.invariant: each.check_count for each in session.invariants}


def test_every_promise_is_counted_where_it_is_checked() -> None:
    session = new_session(hashing)
    assert set(counts(session).values()) == {0}
    session.append(range(20))
    while PrefillTurn(session)():
        pass
    prefilled = counts(session)
    assert prefilled["history_cache_agreement"] == prefilled["bounded_kv_memory"] > 0
    assert prefilled["contiguous_commit"] == prefilled["finite_logits"] == 0
    for blocks in (1, 2):
        VerifyTurn(session, Block([1, 2, 3], GREEDY, 4))()
        decided = counts(session)
        assert decided["contiguous_commit"] == decided["finite_logits"] == blocks
    # Before and after each forward.
    assert decided["history_cache_agreement"] == prefilled["history_cache_agreement"] + 4
    # A fork promises for itself: its origin checked once more to be forked.
    assert set(counts(session.fork()).values()) == {0}
    assert counts(session)["bounded_kv_memory"] == decided["bounded_kv_memory"] + 1


@pytest.mark.parametrize("length", range(14))
def test_forgotten_is_what_the_rule_of_positions_hides_for_ever(length: int) -> None:
    sink, window = WINDOWED.sink, WINDOWED.window
    # The next query is that of the last token; later ones see still less of them.
    hidden = [
        position for position in range(length) if not attends(length - 1, position, sink, window)
    ]
    assert WINDOWED.forgotten_count(length) == len(hidden)


def test_a_session_forgets_as_far_as_it_has_computed() -> None:
    session = new_session(hashing)
    session.append(range(40))
    assert session.forgotten_count == 0
    seen = []
    while PrefillTurn(session)():
        seen.append(session.forgotten_count)
    assert seen == sorted(seen)
    assert session.forgotten_count == 40 - 2 - 6
    full = new_session(hashing, FULL)
    full.append(range(40))
    while PrefillTurn(full)():
        pass
    assert full.forgotten_count == 0
