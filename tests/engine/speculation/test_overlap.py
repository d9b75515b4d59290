"""What forwards beside a draft take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.speculation.overlap import (
    NOTHING_MEASURED,
)


@given(st.lists(st.tuples(st.floats(0.1, 100.0), st.booleans()), max_size=40))
def test_each_kind_is_measured_by_itself(blocks: list[tuple[float, bool]]) -> None:
    found = NOTHING_MEASURED
    for scale, beside in blocks:
        found = found.after_forward(scale, beside=beside).after_draft(2 * scale, beside=beside)
    for is_beside, forward, draft, since in (
        (True, found.forward_beside, found.draft_beside, found.since_beside),
        (False, found.forward_apart, found.draft_apart, found.since_apart),
    ):
        scales = [scale for scale, beside in blocks if beside is is_beside]
        assert forward.count == draft.count == len(scales)
        if scales:
            assert min(scales) * (1 - 1e-9) <= forward.mean <= max(scales) * (1 + 1e-9)
            assert draft.mean == pytest.approx(2 * forward.mean)
        last = max((n for n, (_, beside) in enumerate(blocks) if beside is is_beside), default=-1)
        assert since == len(blocks) - 1 - last


def test_nothing_is_slower_before_both_are_known() -> None:
    beside = NOTHING_MEASURED.after_forward(2.0, beside=True).after_draft(3.0, beside=True)
    assert beside.slowed_forward == beside.slowed_draft == 0.0
    both = beside.after_forward(1.5, beside=False).after_draft(2.0, beside=False)
    assert (both.slowed_forward, both.slowed_draft) == (0.5, 1.0)
    # That one is faster beside the other is chance.
    assert beside.after_forward(2.5, beside=False).slowed_forward == 0.0
    assert beside.after_draft(4.0, beside=False).slowed_draft == 0.0
