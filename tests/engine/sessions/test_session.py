from __future__ import annotations

from collections.abc import Sequence
from typing import Never

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.errors import (
    ContextExceeded,
    EmptyAppend,
    EmptyHistory,
    HistoryLengthMismatch,
    TokenOutOfVocabulary,
)
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from tests.support import hash_verifier as hashing
from tests.support.hash_sessions import (
    FULL,
    PROMPT,
    SEEDED,
    WINDOWED,
    alone,
    new_session,
    prefilled,
)
from tests.support.replacing import replace_method


@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_history_counts_not_how_it_arrived(data: st.DataObject) -> None:
    """Random chunks, prefill begun in between, and generation in the middle."""
    session = new_session()
    expected = hashing.expected_stream(PROMPT, WINDOWED, 12, SEEDED)
    text = [*PROMPT, *expected]
    at = 0
    while at < len(PROMPT):
        end = data.draw(st.integers(at + 1, len(PROMPT)), "append up to")
        session.append(PROMPT[at:end], expected_length=at)
        at = end
        for _ in range(data.draw(st.integers(0, 3), "prefill steps")):
            PrefillTurn(session)()
    prefilled(session)
    while len(session.history) < len(text):
        at = len(session.history)
        right = data.draw(st.integers(0, 6), "right tokens")
        draft = [*text[at : at + right], data.draw(st.integers(0, 47), "a guess")]
        VerifyTurn(session, Block(draft, SEEDED, len(text) - at))()
    assert session.history[:] == text


@pytest.mark.parametrize(
    ("spec", "token_ids", "expected_length", "error"),
    [
        (WINDOWED, [], None, EmptyAppend),
        (WINDOWED, [1, 48], None, TokenOutOfVocabulary),
        (WINDOWED, [1, -1], None, TokenOutOfVocabulary),
        (WINDOWED, [2**70], None, TokenOutOfVocabulary),
        (WINDOWED, [1], 4, HistoryLengthMismatch),
        (WINDOWED, [7], 2, HistoryLengthMismatch),
        (WINDOWED, [1] * 98, None, ContextExceeded),
        (FULL, [1] * 62, None, ContextExceeded),
    ],
)
def test_a_refused_append_changes_nothing(
    spec: CacheSpec, token_ids: list[int], expected_length: int | None, error: type[Exception]
) -> None:
    session = new_session(spec, context_length=100)
    session.append([5, 6, 7])
    with pytest.raises(error):
        session.append(token_ids, expected_length)
    assert session.history[:] == [5, 6, 7]
    assert alone(session, 3) == hashing.expected_stream([5, 6, 7], spec, 3, GREEDY)


def test_an_unknown_token_is_named_with_its_place() -> None:
    with pytest.raises(TokenOutOfVocabulary) as caught:
        new_session().append([1, 2, 60, 70])
    assert caught.value.metadata == {"token_id": "60", "index": "2", "vocabulary_size": "48"}


def test_a_prefill_step_is_one_forward_as_wide_as_the_cache_takes() -> None:
    session = new_session()
    session.append(PROMPT[:40])
    assert session.chunk == 17
    counts = []
    while session.pending:
        before = session.pending
        assert PrefillTurn(session)() == (session.pending > 0)
        counts.append(before - session.pending)
    assert counts == [17, 17, 5]
    assert session.forward_count == hashing.of_session(session).forward_count == 3
    assert not PrefillTurn(session)()
    assert session.forward_count == 3


def test_a_block_is_one_forward() -> None:
    expected = hashing.expected_stream(PROMPT, WINDOWED, 16, GREEDY)
    session = new_session()
    session.append(PROMPT)
    before = prefilled(session).forward_count
    step = VerifyTurn(session, Block(expected[:15], GREEDY, 100))().step
    assert session.forward_count == before + 1
    assert step.committed == tuple(expected)
    assert (step.first_index, step.verified_count, step.accepted_count) == (len(PROMPT), 15, 15)


def test_nothing_is_committed_behind_a_stop_id() -> None:
    expected = hashing.expected_stream(PROMPT, WINDOWED, 16, GREEDY)
    stop = expected[5]
    first = expected.index(stop)
    session = new_session()
    session.append(PROMPT)
    prefilled(session)
    step = VerifyTurn(session, Block(expected[:15], GREEDY, 100, frozenset({stop})))().step
    assert step.stopped
    assert step.committed == tuple(expected[: first + 1])
    assert step.accepted_count == first + 1
    assert alone(session, 4) == expected[first + 1 : first + 5]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_no_more_than_the_limit_is_committed(limit: int) -> None:
    expected = hashing.expected_stream(PROMPT, WINDOWED, 16, GREEDY)
    session = new_session()
    session.append(PROMPT)
    step = VerifyTurn(prefilled(session), Block(expected[:15], GREEDY, limit))().step
    assert step.committed == tuple(expected[:limit])
    assert step.verified_count == limit - 1


@pytest.mark.parametrize("spec", [WINDOWED, FULL])
def test_the_history_fills_the_context_and_no_more(spec: CacheSpec) -> None:
    session = new_session(spec, context_length=64)
    assert session.history_limit == 64
    session.append(PROMPT[:60])
    step = VerifyTurn(prefilled(session), Block([0] * 15, GREEDY, 100))().step
    assert step.verified_count == 3
    alone(session, 64 - len(session.history))
    with pytest.raises(ContextExceeded):
        VerifyTurn(session, Block([], GREEDY, 1))()
    assert len(session.history) == 64


def test_generation_needs_a_history_and_a_finished_prefill() -> None:
    session = new_session()
    with pytest.raises(EmptyHistory):
        VerifyTurn(session, Block([], GREEDY, 1))()
    session.append([1, 2])
    with pytest.raises(ValueError, match="wait for prefill"):
        VerifyTurn(session, Block([], GREEDY, 1))()
    with pytest.raises(ValueError, match="limit"):
        VerifyTurn(session, Block([], GREEDY, 0))()


def test_kv_bytes_do_not_grow() -> None:
    session = new_session()
    session.append(PROMPT[:3])
    before = session.memory_bytes
    session.append(PROMPT[3:])
    alone(session, 5)
    assert session.memory_bytes == before > 0
    assert session.resident <= 8


def test_a_prefill_forward_is_no_wider_than_the_verifier_takes() -> None:
    session = new_session(FULL)
    session.verifier.use_row_counts((16,))
    session.append([7] * 40)
    prefilled(session)
    assert list(hashing.of_session(session).batches) == [(16,), (16,), (7,)]


def test_a_forward_that_fails_leaves_the_session_as_it_was() -> None:
    session = new_session()
    session.append(PROMPT)
    expected = hashing.expected_stream(PROMPT, WINDOWED, 9, GREEDY)
    honest = session.verifier.forward_batch

    def failing(feeds: Sequence[Feed]) -> Never:
        honest(feeds)
        raise ZeroDivisionError

    for operation in (
        PrefillTurn(session),
        lambda: VerifyTurn(session, Block([1, 2], GREEDY, 9))().step,
    ):
        replace_method(session.verifier, "forward_batch", failing)
        with pytest.raises(ZeroDivisionError):
            operation()
        replace_method(session.verifier, "forward_batch", honest)
        prefilled(session)
    assert session.history[:] == PROMPT
    assert alone(session, 9) == expected


def test_choices_that_fail_leave_the_session_as_it_was() -> None:
    """What `decide` refuses is the caller's mistake, and no broken promise."""
    session = new_session()
    session.append(PROMPT)
    expected = hashing.expected_stream(PROMPT, WINDOWED, 3, GREEDY)
    with pytest.raises(AttributeError):
        prefilled(session).verified(
            forwarded(session, [4, 5]),
            None,  # type: ignore[arg-type]  # the caller's mistake
        )
    assert session.history[:] == PROMPT
    assert alone(session, 3) == expected


def forwarded(session: Session, draft: Sequence[int]) -> Output:
    return session.verifier.forward_batch([session.verify_feed(draft, 9)])[0]


def new_with_one_token() -> Session:
    session = new_session()
    session.append([1])
    return session


def test_one_forward_at_a_time() -> None:
    session = new_session()
    session.append(PROMPT[:30])
    session.prefill_feed()
    for operation in (session.prefill_feed, session.fork):
        with pytest.raises(ValueError, match="under way"):
            operation()
    session.not_run()
    prefilled(session)
    with pytest.raises(ValueError, match="no forward"):
        session.prefilled(forwarded(new_with_one_token(), []))
    assert alone(session, 3) == hashing.expected_stream(PROMPT[:30], WINDOWED, 3, GREEDY)
