"""Reading a history into a pool: each position once, the last one too, and no trace of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.errors import EmptyHistory, InvariantViolated, SessionNotFound
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.mean_pool import MeanPool
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, ReadTurn, VerifyTurn, run_turns
from tests.support import hash_verifier as hashing
from tests.support.replacing import replace_method

SPEC = CacheSpec(CacheKind.CONTIGUOUS, capacity=200)
TEXT = [(index * index) % 48 for index in range(150)]


class Heard(MeanPool):
    """Keeps what it takes."""

    def __init__(self) -> None:
        super().__init__(1)
        self.rows: list[float] = []

    def add(self, first: int, hidden_states: np.ndarray) -> None:
        self.rows += hidden_states[self.count - first :, 0, 0].tolist()
        super().add(first, hidden_states)


def opened(verifier: hashing.HashVerifier, text: list[int]) -> Session:
    session = Session(verifier, verifier.allocate(SPEC))
    session.append(text)
    return session


def test_a_text_is_read_in_the_fewest_forwards_each_position_once() -> None:
    verifier = hashing.HashVerifier()
    session, whole, single = opened(verifier, TEXT), Heard(), Heard()
    while ReadTurn(session, whole)():
        pass
    assert list(verifier.batches) == [(64,), (64,), (22,)]
    by_one = opened(verifier, TEXT)
    while single.count < len(TEXT):
        (ended,) = run_turns([(ReadTurn(by_one, single), 1)])
        assert ended.error is None
    assert whole.rows == single.rows
    assert whole.vector().tobytes() == single.vector().tobytes()
    # The last token is still to be fed: whoever goes on finds a history as any other.
    assert session.pending == 0
    assert session.computed_count == len(TEXT) - 1
    step = VerifyTurn(session, Block((), GREEDY, limit=1))().step
    assert [choice.token_id for choice in step.choices] == hashing.expected_stream(
        TEXT, SPEC, 1, GREEDY
    )


def test_a_forward_that_fails_is_read_again() -> None:
    verifier = hashing.HashVerifier()
    expected, heard = Heard(), Heard()
    whole, session = opened(verifier, TEXT), opened(verifier, TEXT)
    while ReadTurn(whole, expected)():
        pass
    assert ReadTurn(session, heard)()
    honest = verifier.forward_batch

    def forward_batch(feeds: Sequence[Feed]) -> list[Output]:
        honest(feeds)
        raise ZeroDivisionError

    replace_method(verifier, "forward_batch", forward_batch)
    with pytest.raises(ZeroDivisionError):
        ReadTurn(session, heard)()
    replace_method(verifier, "forward_batch", honest)
    assert heard.count == 64
    while ReadTurn(session, heard)():
        pass
    assert heard.rows == expected.rows


def test_what_cannot_be_read_says_so() -> None:
    verifier = hashing.HashVerifier()
    with pytest.raises(EmptyHistory):
        ReadTurn(Session(verifier, verifier.allocate(SPEC)), Heard())()
    session = opened(verifier, TEXT)
    session.end("closed")
    with pytest.raises(SessionNotFound):
        ReadTurn(session, Heard())()
    assert verifier.pool.used_bytes == SPEC.capacity * hashing.SLOT_BYTES


def test_a_mean_has_a_direction_or_is_refused() -> None:
    pool = MeanPool(2)
    pool.add(0, np.array([[[3.0, 4.0]], [[9.0, 12.0]]], np.float32))
    assert pool.vector().tolist() == pytest.approx([0.6, 0.8], abs=1e-7)
    # Positions that are added already count once, and none may be left out.
    pool.add(1, np.array([[[9.0, 12.0]]], np.float32))
    assert pool.count == 2
    with pytest.raises(ValueError, match="position 2"):
        pool.add(3, np.zeros((1, 1, 2), np.float32))
    pool.add(2, np.array([[[np.nan, 1.0]]], np.float32))
    for empty in (pool, MeanPool(2)):
        with pytest.raises(InvariantViolated, match="finite"):
            empty.vector()
