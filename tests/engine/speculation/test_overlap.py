"""What forwards beside a draft take, and that sessions tell each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.speculation.overlap import (
    KEPT_SECONDS,
    NOTHING_MEASURED,
    Overlap,
    OverlapBook,
)

PROPOSER = ("node", "model")


@given(st.lists(st.tuples(st.floats(0.1, 100.0), st.booleans()), max_size=40))
def test_each_kind_is_measured_by_itself(blocks: list[tuple[float, bool]]) -> None:
    found = NOTHING_MEASURED
    for scale, beside in blocks:
        found = found.after_block(scale, beside=beside)
    for is_beside, mean, count, since in (
        (True, found.beside_scale, found.beside_count, found.since_beside),
        (False, found.apart_scale, found.apart_count, found.since_apart),
    ):
        scales = [scale for scale, beside in blocks if beside is is_beside]
        assert count == len(scales)
        if scales:
            assert min(scales) * (1 - 1e-9) <= mean <= max(scales) * (1 + 1e-9)
        last = max((n for n, (_, beside) in enumerate(blocks) if beside is is_beside), default=-1)
        assert since == len(blocks) - 1 - last


def test_nothing_is_slower_before_both_are_known() -> None:
    beside = NOTHING_MEASURED.after_block(2.0, beside=True)
    assert beside.slowed_scale == 0.0
    assert beside.after_block(1.5, beside=False).slowed_scale == pytest.approx(0.5)
    # A forward beside a draft is not faster: that is chance.
    assert beside.after_block(2.5, beside=False).slowed_scale == 0.0


def test_sessions_know_what_the_latest_found_for_a_while() -> None:
    now = 5.0
    book = OverlapBook(lambda: now)
    assert book.get("verifier", PROPOSER) is NOTHING_MEASURED
    found = Overlap(2.0, 3, 1.0, 4)
    book.put("verifier", PROPOSER, found)
    assert book.get("verifier", PROPOSER) == found
    assert book.get("verifier", ("other", "model")) is NOTHING_MEASURED
    # Another verifier of the node has forwards of another length.
    assert book.get("another", PROPOSER) is NOTHING_MEASURED
    now += KEPT_SECONDS
    assert book.get("verifier", PROPOSER) is NOTHING_MEASURED
