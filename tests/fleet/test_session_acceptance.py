"""The range of acceptance over sessions, and what it is when they are few."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.fleet.cards.card import ModelKind
from kakeya_fleet.fleet.placement.acceptance_prior import ASSUMED_ACCEPTANCE, acceptance_of
from kakeya_fleet.fleet.placement.session_acceptance import SessionAcceptance, over_sessions
from kakeya_fleet.fleet.views.node_view import MeasuredAcceptance

TRIED = st.floats(0.0, 500.0)
SESSIONS = st.lists(
    st.builds(
        lambda tried, share: SessionAcceptance(100, tried, share * tried),
        TRIED,
        st.floats(0.0, 1.0),
    ),
    max_size=40,
)


def of_rates(*rates: float, tried: float = 100.0) -> MeasuredAcceptance:
    return over_sessions([SessionAcceptance(100, tried, rate * tried) for rate in rates])


def test_four_of_five_sessions_lie_in_the_range() -> None:
    measured = of_rates(*(ordinal / 10 for ordinal in range(1, 11)))
    assert measured.acceptance_rate == pytest.approx(0.55)
    assert (measured.low, measured.high) == pytest.approx((0.1, 0.9))


def test_a_session_with_few_compared_tokens_counts_as_a_part() -> None:
    measured = over_sessions([SessionAcceptance(4, 4.0, 4.0), SessionAcceptance(64, 64.0, 0.0)])
    assert measured.session_count == pytest.approx(1.25)
    assert measured.acceptance_rate == pytest.approx(0.2)


@given(SESSIONS)
def test_the_rate_is_always_in_its_range_and_the_range_in_0_to_1(
    sessions: list[SessionAcceptance],
) -> None:
    measured = over_sessions(sessions)
    assert 0.0 <= measured.low <= measured.acceptance_rate <= measured.high <= 1.0 + 1e-9
    assert 0.0 <= measured.session_count <= len(sessions)


def test_what_few_sessions_say_keeps_the_assumed_range() -> None:
    assumed = ASSUMED_ACCEPTANCE[ModelKind.NGRAM]
    few = acceptance_of(ModelKind.NGRAM, of_rates(0.5, 0.55))
    assert (few.rate, few.low, few.high) == pytest.approx((0.525, assumed.low, assumed.high))
    many = acceptance_of(ModelKind.NGRAM, of_rates(*[0.5, 0.55] * 4))
    assert (many.low, many.high, many.is_measured) == (0.5, 0.55, True)


def test_more_is_assumed_of_the_same_weights_until_they_are_measured() -> None:
    kind = ModelKind.AUTOREGRESSIVE
    assumed = acceptance_of(kind, None, same_weights=True)
    assert assumed.low > ASSUMED_ACCEPTANCE[kind].rate
    measured = of_rates(*[0.5, 0.55] * 4)
    assert acceptance_of(kind, measured, same_weights=True) == acceptance_of(kind, measured)


def test_sessions_that_say_nothing_leave_the_assumption() -> None:
    nothing = over_sessions([SessionAcceptance(500)])
    assert acceptance_of(ModelKind.DFLASH, nothing) is ASSUMED_ACCEPTANCE[ModelKind.DFLASH]
