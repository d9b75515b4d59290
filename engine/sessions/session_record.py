"""What the session registry knows of one session, and of one verifier's memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.engine.sessions.ended import EndReason
from kakeya_fleet.engine.sessions.guest import Guest
from kakeya_fleet.engine.sessions.prefill_pace import PrefillPace
from kakeya_fleet.engine.sessions.session import Session

MAX_LABEL_CHARACTERS = 128

Opened = TypeVar("Opened")
"""What whoever serves sessions keeps with each of them."""


class Activity(StrEnum):
    """What a session does."""

    IDLE = "idle"
    APPENDING = "appending"
    GENERATING = "generating"
    RESTING = "resting"
    """Idle, without memory: its next operation computes its keys and values again."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What the client said when it opened the session."""

    client_label: str = ""
    stop_token_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if len(self.client_label) > MAX_LABEL_CHARACTERS:
            raise BadParameters(
                f"the client label has more than {MAX_LABEL_CHARACTERS} characters",
                field="client_label",
            )


@dataclass(slots=True, eq=False)
class KvBudget:
    """The K/V bytes that the sessions of one verifier may take together."""

    verifier: Verifier
    nbytes: int
    end_reason: EndReason | None = None
    """Why no session is made any more, once its verifier is gone."""
    pace: PrefillPace = field(default_factory=PrefillPace)
    """How soon its verifier computes again what a session gave back."""
    guest: Guest | None = None
    """Who has bytes of it besides, as long as no session needs them."""

    @property
    def used_bytes(self) -> int:
        """K/V bytes of its sessions: held, and reserved for what they share and will write."""
        guest = self.guest
        return max(0, self.verifier.pool.used_bytes - (0 if guest is None else guest.nbytes))

    def send_guest_away(self, needed: int) -> None:
        """Has the guest leave where fewer than `needed` bytes are free with it.

        In the verifier's thread.
        """
        if self.guest is not None and needed > self.nbytes - self.verifier.pool.used_bytes:
            self.guest.leave()

    @property
    def free_bytes(self) -> int:
        """What is not used; 0 when the budget was lowered below that."""
        return max(0, self.nbytes - self.used_bytes)

    def has_free(self, nbytes: int) -> bool:
        """Whether so many bytes are."""
        return nbytes <= self.free_bytes


@dataclass(slots=True, eq=False)
class SessionRecord(Generic[Opened]):
    """A session in the registry. Seconds are those of the registry's clock.

    `ordinal` orders the sessions that were opened, from 1 on; 0 and no `opened` until
    then.
    """

    session_id: str
    session: Session
    options: SessionOptions
    budget: KvBudget
    ttl_seconds: float
    """Idle seconds after which it is evicted."""
    created_at: float
    last_used_at: float
    owner: str = ""
    """Whose it is: nobody else finds it. Compared only."""
    activities: list[Activity] = field(default_factory=list)
    gives_way: bool = False
    """Whether it makes way at once, however short it has been idle, until it goes on."""
    ordinal: int = 0
    opened: Opened | None = None

    @property
    def held(self) -> bool:
        """Whether an operation runs or waits."""
        return bool(self.activities)

    @property
    def activity(self) -> Activity:
        """What the latest holder does. Any thread may ask."""
        latest = self.activities[-1:]
        if latest:
            return latest[0]
        return Activity.RESTING if self.session.is_resting else Activity.IDLE

    def idle_seconds(self, now: float) -> float:
        """Seconds since its last operation ended; 0 while one runs."""
        return 0.0 if self.held else max(0.0, now - self.last_used_at)
