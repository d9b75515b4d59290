"""Invitations of a node: who may still try to join, decided without clock, sockets or chance.

An invitation lives for ten minutes and three tries, and ends with the first success. Each try is
one guess at a password of a million values, so all of an invitation's tries together guess right
with a probability of 3e-6. A try is counted when the first message is answered, since from then
on the other side can check its guess; nobody gets it back, whatever becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from kakeya_fleet.fleet.errors import InvitationClosed, NoInvitationFound, TooManyInvitations
from kakeya_fleet.fleet.trust.join_code import NAMEPLATES, PASSWORDS, SECRET_BYTES

LIFETIME_SECONDS = 600.0
TRIES = 3
MOST_OPEN = 4
MOST_REMEMBERED = 16
"""Invitations that are over and whose end can still be told."""


class Ended(StrEnum):
    """Why an invitation is over."""

    EXPIRED = "EXPIRED"
    LOCKED = "LOCKED"
    USED = "USED"
    WITHDRAWN = "WITHDRAWN"


_WHY = {
    Ended.EXPIRED: "its time is over",
    Ended.LOCKED: "its tries are spent",
    Ended.USED: "a machine has joined by it",
    Ended.WITHDRAWN: "it was withdrawn",
}


@dataclass(frozen=True, slots=True)
class Invitation:
    """What an invitation is made of; `password` has six digits, `secret` 16 bytes.

    `expires_at` is in seconds of the caller's clock.
    """

    nameplate: str
    password: str = field(repr=False)
    secret: bytes = field(repr=False)
    expires_at: float


@dataclass(frozen=True, slots=True)
class Try:
    """One answered hello. `number` counts from 1 in its invitation."""

    invitation: Invitation
    number: int


@dataclass(slots=True)
class _Record:
    """How far an invitation is. `pending` has the numbers of tries that are not over."""

    invitation: Invitation
    tries: int = 0
    pending: set[int] = field(default_factory=set)
    is_used: bool = False


class Invitations:
    """The invitations of one node. Time is in seconds of any clock that never goes back."""

    def __init__(self, lifetime_seconds: float = LIFETIME_SECONDS) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._open: dict[str, _Record] = {}
        self._ended: dict[str, Ended] = {}

    def invite(self, now: float, randbelow: Callable[[int], int]) -> Invitation:
        """A new invitation. `randbelow(n)` gives a secret integer in [0, n), each as likely.

        Raises `TooManyInvitations`.
        """
        self._expire(now)
        if len(self._open) >= MOST_OPEN:
            raise TooManyInvitations(f"{MOST_OPEN} invitations are open")
        taken = {int(each) for each in (*self._open, *self._ended)}
        free = [each for each in range(NAMEPLATES) if each not in taken]
        invitation = Invitation(
            nameplate=f"{free[randbelow(len(free))]:03}",
            password=f"{randbelow(PASSWORDS):06}",
            secret=randbelow(1 << 8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "big"),
            expires_at=now + self._lifetime_seconds,
        )
        self._open[invitation.nameplate] = _Record(invitation)
        return invitation

    def open_at(self, now: float) -> tuple[Invitation, ...]:
        """Those that a machine can still join by, a pending try counted, oldest first."""
        self._expire(now)
        return tuple(record.invitation for record in self._open.values() if not record.is_used)

    def tries_left(self, nameplate: str) -> int:
        """How many hellos will still be answered; 0 for an invitation that is over."""
        record = self._open.get(nameplate)
        return 0 if record is None or record.is_used else TRIES - record.tries

    def answer(self, nameplate: str, now: float) -> Try:
        """Counts a try, before its hello is answered.

        Raises `NoInvitationFound`, `InvitationClosed`.
        """
        record = self._record(nameplate, now)
        if record.tries >= TRIES:
            raise _closed(nameplate, Ended.LOCKED)
        record.tries += 1
        record.pending.add(record.tries)
        return Try(record.invitation, record.tries)

    def fail(self, attempt: Try) -> bool:
        """A try came to nothing; whether that locks its invitation. Once over, it stays over."""
        record = self._of(attempt)
        if record is None:
            return False
        record.pending.discard(attempt.number)
        if record.is_used or record.tries < TRIES or record.pending:
            return False
        self._end(record, Ended.LOCKED)
        return True

    def claim(self, attempt: Try, now: float) -> None:
        """A try has proved that it knows the code: nobody else joins by this invitation.

        Then comes `finish`, or `release` when the machine is refused for another reason. Raises
        `InvitationClosed` when another was first, or time is over.
        """
        record = self._record(attempt.invitation.nameplate, now)
        if attempt.number not in record.pending or record.invitation != attempt.invitation:
            raise _closed(attempt.invitation.nameplate, Ended.LOCKED)
        record.is_used = True

    def release(self, attempt: Try) -> bool:
        """What was claimed is open again, the try spent; whether that locks it."""
        record = self._of(attempt)
        if record is None:
            return False
        record.is_used = False
        return self.fail(attempt)

    def finish(self, attempt: Try) -> None:
        """The machine has joined: the invitation is over."""
        record = self._of(attempt)
        if record is not None:
            self._end(record, Ended.USED)

    def withdraw(self, nameplate: str) -> None:
        """Ends an invitation that is open; does nothing for another."""
        record = self._open.get(nameplate)
        if record is not None:
            self._end(record, Ended.WITHDRAWN)

    def _expire(self, now: float) -> None:
        for record in list(self._open.values()):
            # One that is being granted is in time.
            if not record.is_used and now >= record.invitation.expires_at:
                self._end(record, Ended.EXPIRED)

    def _record(self, nameplate: str, now: float) -> _Record:
        self._expire(now)
        record = self._open.get(nameplate)
        if record is not None and not record.is_used:
            return record
        ended = Ended.USED if record is not None else self._ended.get(nameplate)
        if ended is None:
            raise NoInvitationFound(f"no invitation {nameplate} is open here")
        raise _closed(nameplate, ended)

    def _of(self, attempt: Try) -> _Record | None:
        record = self._open.get(attempt.invitation.nameplate)
        return record if record is not None and record.invitation == attempt.invitation else None

    def _end(self, record: _Record, ended: Ended) -> None:
        nameplate = record.invitation.nameplate
        del self._open[nameplate]
        while len(self._ended) >= MOST_REMEMBERED:
            del self._ended[next(iter(self._ended))]
        self._ended[nameplate] = ended


def _closed(nameplate: str, ended: Ended) -> InvitationClosed:
    return InvitationClosed(
        f"the invitation {nameplate} is closed: {_WHY[ended]}", cause=ended.value
    )
