from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from kakeya_fleet.fleet.errors import InvitationClosed, NoInvitationFound, TooManyInvitations
from kakeya_fleet.fleet.trust.invitation import (
    LIFETIME_SECONDS,
    MOST_OPEN,
    MOST_REMEMBERED,
    TRIES,
    Invitation,
    Invitations,
    Try,
)


@pytest.fixture
def randbelow() -> Callable[[int], int]:
    return random.Random(7).randrange


def cause_of(failing: Callable[[], object]) -> str:
    with pytest.raises(InvitationClosed) as raised:
        failing()
    return raised.value.metadata["cause"]


def test_three_tries_lock_an_invitation(randbelow: Callable[[int], int]) -> None:
    book = Invitations()
    nameplate = book.invite(0.0, randbelow).nameplate
    tries = [book.answer(nameplate, 1.0) for _ in range(TRIES)]
    assert [each.number for each in tries] == [1, 2, 3]
    assert book.tries_left(nameplate) == 0
    assert cause_of(lambda: book.answer(nameplate, 1.0)) == "LOCKED"
    assert [book.fail(each) for each in tries] == [False, False, True]
    assert book.open_at(1.0) == ()
    assert cause_of(lambda: book.answer(nameplate, 1.0)) == "LOCKED"


def test_the_last_try_may_succeed_after_the_others_failed(
    randbelow: Callable[[int], int],
) -> None:
    book = Invitations()
    nameplate = book.invite(0.0, randbelow).nameplate
    one, two, last = (book.answer(nameplate, 1.0) for _ in range(TRIES))
    assert not book.fail(one)
    assert not book.fail(two)
    book.claim(last, 2.0)
    book.finish(last)
    assert cause_of(lambda: book.answer(nameplate, 3.0)) == "USED"


def test_of_two_joiners_at_once_one_joins(randbelow: Callable[[int], int]) -> None:
    book = Invitations()
    nameplate = book.invite(0.0, randbelow).nameplate
    one, other = book.answer(nameplate, 1.0), book.answer(nameplate, 1.0)
    book.claim(other, 2.0)
    assert cause_of(lambda: book.claim(one, 2.0)) == "USED"
    assert cause_of(lambda: book.answer(nameplate, 2.0)) == "USED"
    book.finish(other)
    assert cause_of(lambda: book.claim(one, 2.0)) == "USED"
    assert not book.fail(one)


def test_a_refused_machine_has_spent_its_try_and_nothing_else(
    randbelow: Callable[[int], int],
) -> None:
    book = Invitations()
    nameplate = book.invite(0.0, randbelow).nameplate
    first = book.answer(nameplate, 1.0)
    book.claim(first, 1.0)
    assert not book.release(first)
    assert book.tries_left(nameplate) == TRIES - 1
    second = book.answer(nameplate, 2.0)
    book.claim(second, 2.0)
    with pytest.raises(InvitationClosed):
        book.claim(first, 2.0)


def test_ten_minutes_end_an_invitation_and_the_tries_that_are_under_way(
    randbelow: Callable[[int], int],
) -> None:
    book = Invitations()
    invitation = book.invite(5.0, randbelow)
    under_way = book.answer(invitation.nameplate, 5.0)
    assert book.open_at(5.0 + LIFETIME_SECONDS - 0.001) == (invitation,)
    end = 5.0 + LIFETIME_SECONDS
    assert cause_of(lambda: book.claim(under_way, end)) == "EXPIRED"
    assert cause_of(lambda: book.answer(invitation.nameplate, end)) == "EXPIRED"


def test_what_was_never_open_is_not_found_and_what_was_withdrawn_is_closed(
    randbelow: Callable[[int], int],
) -> None:
    book = Invitations()
    nameplate = book.invite(0.0, randbelow).nameplate
    other = f"{(int(nameplate) + 1) % 1000:03}"
    with pytest.raises(NoInvitationFound):
        book.answer(other, 0.0)
    book.withdraw(other)
    book.withdraw(nameplate)
    assert cause_of(lambda: book.answer(nameplate, 0.0)) == "WITHDRAWN"


def test_four_are_open_at_most_and_no_two_have_one_nameplate() -> None:
    book = Invitations()
    # The least chance that there can be.
    made = [book.invite(0.0, lambda _: 0) for _ in range(MOST_OPEN)]
    assert len({each.nameplate for each in made}) == MOST_OPEN
    with pytest.raises(TooManyInvitations):
        book.invite(0.0, lambda _: 0)
    book.invite(LIFETIME_SECONDS, lambda _: 0)


def test_invitations_that_are_over_are_remembered_up_to_a_bound() -> None:
    book = Invitations()
    nameplates = []
    for _ in range(MOST_REMEMBERED + 1):
        nameplates.append(book.invite(0.0, lambda _: 0).nameplate)
        book.withdraw(nameplates[-1])
    with pytest.raises(NoInvitationFound):
        book.answer(nameplates[0], 0.0)
    assert cause_of(lambda: book.answer(nameplates[1], 0.0)) == "WITHDRAWN"


def test_an_invitation_that_is_shown_shows_no_secret() -> None:
    invitation = Invitation("123", "456789", b"x" * 16, 0.0)
    assert "456789" not in repr(invitation)
    assert "xxx" not in repr(invitation)


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order: three answers and one success at most, in time."""

    invitations = Bundle("invitations")
    tries = Bundle("tries")

    def __init__(self) -> None:
        super().__init__()
        self.book = Invitations()
        self.now = 0.0
        self.random = random.Random(1)
        self.answers: dict[Invitation, int] = {}
        self.successes: dict[Invitation, int] = {}
        self.claimed: list[Try] = []

    @rule(seconds=st.floats(0, LIFETIME_SECONDS))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(target=invitations)
    def invite(self) -> Invitation | None:
        try:
            return self.book.invite(self.now, self.random.randrange)
        except TooManyInvitations:
            under_way = {each.invitation for each in self.claimed}
            assert len(under_way.union(self.book.open_at(self.now))) == MOST_OPEN
            return None

    @rule(target=tries, invitation=invitations)
    def answer(self, invitation: Invitation | None) -> Try | None:
        if invitation is None:
            return None
        try:
            attempt = self.book.answer(invitation.nameplate, self.now)
        except (InvitationClosed, NoInvitationFound):
            return None
        # A nameplate may have come to a newer invitation.
        made = attempt.invitation
        self.answers[made] = self.answers.get(made, 0) + 1
        return attempt

    @rule(attempt=tries)
    def fail(self, attempt: Try | None) -> None:
        if attempt is not None and attempt not in self.claimed:
            self.book.fail(attempt)

    @rule(attempt=tries)
    def claim(self, attempt: Try | None) -> None:
        if attempt is None or attempt in self.claimed:
            return
        try:
            self.book.claim(attempt, self.now)
        except (InvitationClosed, NoInvitationFound):
            return
        assert self.now < attempt.invitation.expires_at
        self.claimed.append(attempt)

    @rule(is_refused=st.booleans())
    def settle(self, is_refused: bool) -> None:
        if not self.claimed:
            return
        attempt = self.claimed.pop()
        if is_refused:
            self.book.release(attempt)
        else:
            self.book.finish(attempt)
            made = attempt.invitation
            self.successes[made] = self.successes.get(made, 0) + 1

    @invariant()
    def no_more_than_promised(self) -> None:
        assert all(count <= TRIES for count in self.answers.values())
        assert all(count == 1 for count in self.successes.values())
        held = [each.invitation for each in self.claimed]
        assert len(held) == len(set(held))
        assert not set(held) & self.successes.keys()
        still_open = self.book.open_at(self.now)
        assert len(still_open) <= MOST_OPEN
        assert not set(still_open) & self.successes.keys()
        assert len({each.nameplate for each in still_open}) == len(still_open)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
