"""Who shares the next forward: rows, order, and how long anybody waits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Output
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turn_queue import TurnQueue
from kakeya_fleet.engine.sessions.turns import Turn
from tests.support import hash_verifier as hashing
from tests.support.breadth import again

WIDTH = 16
SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=1, window=3)


class Asked(Turn[None]):
    """A turn of so many rows that is never run."""

    def __init__(self, session: Session, rows: int) -> None:
        super().__init__(session)
        self._rows = rows

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def least_rows(self) -> int:
        return self._rows if self.decodes else 1

    def feed(self, rows: int) -> None:
        raise NotImplementedError

    def outcome(self, output: Output | None) -> None:
        raise NotImplementedError


class Decoding(Asked):
    decodes = True


class Prefilling(Asked):
    decodes = False


def session(row_counts: tuple[int, ...] = hashing.ROW_COUNTS) -> Session:
    verifier = hashing.HashVerifier()
    verifier.row_counts = row_counts
    return Session(verifier, verifier.allocate(SPEC))


def queue_of(*turns: Turn[Any]) -> TurnQueue:
    queue = TurnQueue()
    for turn in turns:
        queue.add(turn)
    return queue


def decoding(rows: int = 1, of: Session | None = None) -> Asked:
    return Decoding(of or session(), rows)


def prefilling(rows: int = 1000, of: Session | None = None) -> Asked:
    return Prefilling(of or session(), rows)


def test_nothing_waits_nothing_runs() -> None:
    assert TurnQueue().next_batch() == []


def test_what_waits_goes_together_in_the_order_in_which_it_came() -> None:
    turns = [decoding(), decoding(5), decoding(10)]
    queue = queue_of(*turns)
    assert queue.next_batch() == [(turns[0], 1), (turns[1], 5), (turns[2], 10)]
    assert len(queue) == 0


def test_prefill_alone_takes_all_rows() -> None:
    first, second, third = prefilling(), prefilling(30), prefilling()
    queue = queue_of(first, second, third)
    assert queue.next_batch() == [(first, 64)]
    assert queue.next_batch() == [(second, 30), (third, 34)]


def test_prefill_beside_an_answer_fills_the_rows_that_it_would_be_padded_to() -> None:
    answer, prompt = decoding(3), prefilling()
    assert queue_of(prompt, answer).next_batch() == [(answer, 3), (prompt, 29)]
    answers = [decoding() for _ in range(17)]
    assert queue_of(prompt, *answers).next_batch() == [*((a, 1) for a in answers), (prompt, 47)]


def test_a_quarter_of_the_rows_is_left_to_a_prompt() -> None:
    answers, prompt = [decoding(16) for _ in range(4)], prefilling()
    queue = queue_of(*answers, prompt)
    assert queue.next_batch() == [*((a, 16) for a in answers[:3]), (prompt, 16)]
    assert queue.next_batch() == [(answers[3], 16)]


def test_a_large_block_is_not_passed_over_twice() -> None:
    """Smaller ones behind it may fill the batch that has no room for it, but never the next."""
    first, large, small = [decoding(16) for _ in range(3)], decoding(16), decoding(2)
    queue = queue_of(*first, decoding(10), large, small)
    assert large not in dict(queue.next_batch())
    assert next(iter(queue.next_batch()))[0] is large


def test_of_one_session_one_turn_at_a_time() -> None:
    of = session()
    first, second, other = decoding(of=of), decoding(of=of), decoding()
    queue = queue_of(first, second, other)
    assert queue.next_batch() == [(first, 1), (other, 1)]
    assert queue.next_batch() == [(second, 1)]


def test_what_was_taken_back_does_not_run() -> None:
    turns = [decoding(), decoding(), prefilling(5)]
    queue = queue_of(*turns)
    queue.discard(turns[0])
    queue.discard(turns[2])
    queue.discard(prefilling())
    assert queue.next_batch() == [(turns[1], 1)]


@pytest.mark.parametrize("row_counts", [(16,), (2,), (1,)])
def test_where_both_have_no_room_they_alternate(row_counts: tuple[int, ...]) -> None:
    of = [session(row_counts) for _ in range(4)]
    width = row_counts[-1]
    queue = queue_of(*(decoding(width, s) for s in of[:2]), *(prefilling(of=s) for s in of[2:]))
    kinds = []
    while queue:
        ((turn, rows),) = queue.next_batch()
        kinds.append(turn.decodes)
        assert rows == width
    assert sorted(kinds) == [False, False, True, True]
    assert kinds[0] != kinds[1]
    assert kinds[1] != kinds[2]


ARRIVALS = st.lists(
    st.tuples(st.booleans(), st.integers(1, WIDTH), st.integers(1, 300)), max_size=6
)


@given(
    batches=st.lists(ARRIVALS, min_size=1, max_size=25),
    row_counts=st.sampled_from([(2, 4, 8, 16, 32, 64), (64,), (16,), (16, 32), (20,)]),
)
@settings(deadline=None, max_examples=40)
@again(3)
def test_nobody_waits_longer_than_the_bound(
    batches: list[list[tuple[bool, int, int]]], row_counts: tuple[int, ...]
) -> None:
    """Whatever comes, also without end; see the bound in `engine.sessions.turn_queue`."""
    queue = TurnQueue()
    waiting: dict[Turn[Any], int] = {}
    most = row_counts[-1]
    together = most - most // 4 >= WIDTH
    for arrivals in [*batches, *[[]] * 200]:
        for decodes, width, pending in arrivals:
            ahead = sum(turn.decodes == decodes for turn in waiting)
            of = session(row_counts)
            asked = Decoding(of, width) if decodes else Prefilling(of, pending)
            waiting[asked] = ahead if together else 2 * ahead + 1
            queue.add(asked)
        batch = queue.next_batch()
        assert bool(batch) == bool(waiting)
        assert sum(rows for _, rows in batch) <= most
        assert len({id(turn.session) for turn, _ in batch}) == len(batch)
        for turn, rows in batch:
            assert turn.least_rows <= rows <= turn.rows
            del waiting[turn]
        if together and {turn.decodes for turn in waiting} == {True, False}:
            assert {turn.decodes for turn, _ in batch} == {True, False}
        for turn in waiting:
            waiting[turn] -= 1
            assert waiting[turn] >= 0, "waits beyond the bound"
    assert not waiting
