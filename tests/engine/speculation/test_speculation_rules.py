"""Checks of drafts from outside, and drafts made ahead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.draft import Draft
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.engine.speculation.ahead import may_fit, usable_suffix
from kakeya_fleet.engine.speculation.checks import check_draft

TOKENS = st.lists(st.integers(0, 2), max_size=6)


@pytest.mark.parametrize("token_ids", [(), (0,), (9, 0, 9)])
def test_shorter_blocks_within_the_vocabulary_pass(token_ids: tuple[int, ...]) -> None:
    check_draft(Draft(token_ids), block_size=3, vocabulary_size=10)


@pytest.mark.parametrize(
    ("token_ids", "kind"),
    [
        ((1, 2, 3, 4), DraftFaultKind.WRONG_LENGTH),
        ((99,) * 4, DraftFaultKind.WRONG_LENGTH),
        ((1, 10), DraftFaultKind.OUT_OF_VOCABULARY),
        ((-1,), DraftFaultKind.OUT_OF_VOCABULARY),
        ((2**64,), DraftFaultKind.OUT_OF_VOCABULARY),
        ((1.0,), DraftFaultKind.OUT_OF_VOCABULARY),
        ((True,), DraftFaultKind.OUT_OF_VOCABULARY),
        (("1",), DraftFaultKind.OUT_OF_VOCABULARY),
        ((np.float32(1),), DraftFaultKind.OUT_OF_VOCABULARY),
    ],
)
def test_what_cannot_be_verified_is_a_fault_by_kind(token_ids, kind: DraftFaultKind) -> None:
    with pytest.raises(DraftFailed) as caught:
        check_draft(Draft(token_ids), block_size=3, vocabulary_size=10)
    assert caught.value.kind is kind


@pytest.mark.parametrize(
    ("assumed", "drafted", "committed", "rest"),
    [
        # All accepted and the bonus guessed: a whole block is left.
        ([1, 2], [3, 4, 5], [1, 2, 3], (4, 5)),
        # The bonus token was another.
        ([1, 2], [3, 4, 5], [1, 2, 9], None),
        # The second drafted token was rejected.
        ([1, 2], [3, 4, 5], [1, 9], None),
        # Nothing behind the bonus token.
        ([1, 2], [3], [1, 2, 3], None),
        ([1, 2], [], [1, 2, 3], None),
        # Cut short by a limit: what was committed is a beginning.
        ([1, 2], [3], [1], (2, 3)),
    ],
)
def test_what_is_left_of_a_draft_made_ahead(
    assumed: list[int], drafted: list[int], committed: list[int], rest: tuple[int, ...] | None
) -> None:
    assert usable_suffix([*assumed, *drafted], committed) == rest


@given(TOKENS, TOKENS, TOKENS)
def test_what_is_usable_continues_what_was_committed(
    assumed: list[int], drafted: list[int], committed: list[int]
) -> None:
    rest = usable_suffix([*assumed, *drafted], committed)
    if rest is not None:
        assert rest
        assert [*committed, *rest] == [*assumed, *drafted]
        assert may_fit(assumed, committed)


@given(TOKENS, TOKENS)
def test_what_may_fit_fits_with_the_right_draft(assumed: list[int], committed: list[int]) -> None:
    possible = assumed[: len(committed)] == committed[: len(assumed)]
    assert may_fit(assumed, committed) == possible
