"""A session whose cache or verifier breaks a promise ends, and the promise is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.cache import KvCache
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.errors import (
    EngineError,
    InvariantViolated,
    SessionNotFound,
)
from kakeya_fleet.engine.invariants import INVARIANTS
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from tests.support import hash_verifier as hashing
from tests.support.hash_sessions import (
    PROMPT,
    WINDOWED,
    alone,
    new_session,
    prefilled,
)
from tests.support.replacing import replace_method


class BrokenCache:
    """Wraps a cache and breaks one promise once `broken` is set."""

    def __init__(self, cache: KvCache, promise: str) -> None:
        self._cache, self._promise, self.broken = cache, promise, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def __setattr__(self, name: str, value: object) -> None:
        own = name in ("_cache", "_promise", "broken")
        object.__setattr__(self if own else self._cache, name, value)

    @property
    def memory_bytes(self) -> int:
        return self._cache.memory_bytes + 8 * (self.broken and self._promise == "bytes")

    @property
    def resident(self) -> int:
        return self._cache.resident + 9 * (self.broken and self._promise == "resident")

    def truncate(self, length: int) -> None:
        if not (self.broken and self._promise == "truncate"):
            self._cache.truncate(length)


@pytest.mark.parametrize(
    ("promise", "invariant"),
    [
        ("bytes", "bounded_kv_memory"),
        ("resident", "bounded_kv_memory"),
        ("truncate", "history_cache_agreement"),
    ],
)
def test_a_broken_promise_is_named_and_ends_the_session(promise: str, invariant: str) -> None:
    verifier = hashing.HashVerifier()
    cache = BrokenCache(verifier.allocate(WINDOWED), promise)
    session = Session(verifier, cache)
    session.append(PROMPT)
    alone(session, 2)
    cache.broken = True
    with pytest.raises(InvariantViolated) as caught:
        VerifyTurn(session, Block([0, 0, 0, 0], GREEDY, 9))()
    assert caught.value.metadata["invariant"] == invariant
    assert_ended(session, invariant)


def test_tokens_that_slip_in_between_end_the_session() -> None:
    session = new_session()
    verifier = session.verifier
    session.append(PROMPT)
    prefilled(session)
    honest = verifier.forward_batch

    def forward_batch(feeds: Sequence[Feed]) -> list[Output]:
        session.history.extend([1])
        return honest(feeds)

    replace_method(verifier, "forward_batch", forward_batch)
    with pytest.raises(InvariantViolated) as caught:
        VerifyTurn(session, Block([], GREEDY, 9))()
    assert caught.value.metadata["invariant"] == "contiguous_commit"
    assert_ended(session, "contiguous_commit")


def test_logits_that_mean_nothing_end_the_session() -> None:
    session = new_session()
    session.append([1])
    nothing = Output(np.full((1, 48), np.nan, np.float32))
    replace_method(session.verifier, "forward_batch", lambda feeds: [nothing])
    with pytest.raises(InvariantViolated):
        VerifyTurn(session, Block([], GREEDY, 9))()
    assert_ended(session, "finite_logits")


def assert_ended(session: Session, invariant: str) -> None:
    assert invariant in session.end_reason
    assert session.memory_bytes == 0
    violations = {each.invariant: each.violation_count for each in session.invariants}
    assert violations == {name: int(name == invariant) for name in INVARIANTS}
    operations: list[Callable[[], object]] = [
        lambda: session.append([1]),
        PrefillTurn(session),
        lambda: VerifyTurn(session, Block([], GREEDY, 1))().step,
        session.fork,
    ]
    for operation in operations:
        with pytest.raises(SessionNotFound, match=invariant) as caught:
            operation()
        assert isinstance(caught.value, EngineError)
