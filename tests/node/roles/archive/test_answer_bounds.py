"""Answers that no keys and values give are told from those that some do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    NOTHING_SEEN,
    EvictedQueries,
    PartialAttention,
)
from kakeya_fleet.node.roles.archive.answer_bounds import impossible
from tests.support import evicted_stores

LENGTH, LAYER = 60, 2


@pytest.fixture
def shape() -> EvictedShape:
    return evicted_stores.small_shape()


def answered(
    shape: EvictedShape, first: int, count: int
) -> tuple[EvictedQueries, PartialAttention]:
    store = evicted_stores.NaiveEvictedStore(shape)
    store.deposit(shape.sink, evicted_stores.random_evicted(shape, LENGTH - shape.sink, seed=0))
    asked = evicted_stores.random_queries(shape, LAYER, first, count, seed=first)
    store.begin(asked)
    return asked, store.finish()


@pytest.mark.parametrize("first", [0, 10, 15, 16, 40, LENGTH])
@pytest.mark.parametrize("count", [1, 5, 12])
def test_what_a_store_answers_may_be(shape: EvictedShape, first: int, count: int) -> None:
    """Where nothing is seen, where some queries see something, and where all do."""
    asked, found = answered(shape, first, count)
    assert not impossible(shape, asked, shape.context_length, found)


def test_the_first_range_is_seen_no_further_than_its_end(shape: EvictedShape) -> None:
    """Queries far behind a range of 57 positions see no more of it."""
    asked, found = answered(shape, 70, 2)
    assert not impossible(shape, asked, LENGTH, found)
    more = replace(found, total=np.full_like(found.total, 57.9))
    assert impossible(shape, asked, LENGTH, more) == (
        "its weights are more than the positions that are seen"
    )


def test_who_sees_nothing_answers_nothing(shape: EvictedShape) -> None:
    asked, found = answered(shape, 10, 8)
    # Positions 10 to 15 see none, 16 and 17 do.
    assert (found.maximum[:, :6] == np.float32(NOTHING_SEEN)).all()
    for name, value in (("output", 1.0), ("total", 1.0), ("maximum", 0.0)):
        altered = getattr(found, name).copy()
        altered[0, 3] = value
        lie = replace(found, **{name: altered})
        assert "nothing is seen" in impossible(shape, asked, shape.context_length, lie)


def test_zeros_are_no_answer_where_something_is_seen(shape: EvictedShape) -> None:
    asked, found = answered(shape, 10, 8)
    zeros = PartialAttention(
        np.zeros_like(found.output), np.zeros_like(found.total), np.zeros_like(found.maximum)
    )
    assert impossible(shape, asked, shape.context_length, zeros)
    blind = replace(zeros, maximum=np.full_like(found.maximum, NOTHING_SEEN))
    assert impossible(shape, asked, shape.context_length, blind)
