"""What membership is told, and what it asks for.

Events go into `fleet.membership.membership.step`, effects come out of it. Every effect
that starts a call is answered by exactly one event, at the latest when the
call's timeout has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kakeya_fleet.fleet.cards.card import Card, SignedCard
from kakeya_fleet.fleet.cards.liveness import Rumour
from kakeya_fleet.fleet.errors import CardRejected

# A card as received; one that could not be decoded is the reason why.
ReceivedCard = SignedCard | CardRejected


@dataclass(frozen=True, slots=True)
class Source:
    """Where a message came from: the host that its connection proves, and what it says it is.

    `host` is an IP address, empty when it is not known; `node_id` is empty from one that only
    looks.
    """

    host: str
    node_id: str = ""


UNKNOWN_SOURCE = Source("")


@dataclass(frozen=True, slots=True)
class Tick:
    """A period has passed; expected every `MembershipSettings.period_seconds`."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Another node's request (or later answer) brought cards and rumours.

    `sender_id` may be empty, from one that only looks, and came from the IP address
    `host`, empty when it is not known. `now_unix` is this node's wall clock in seconds
    since 1970.
    """

    sender_id: str
    cards: Sequence[ReceivedCard]
    rumours: Sequence[Rumour]
    now_unix: float
    host: str = ""


@dataclass(frozen=True, slots=True)
class ExchangeSucceeded:
    """The first answer to `Exchange` or `DialAddress`, from the node `node_id` at `host`."""

    node_id: str
    cards: Sequence[ReceivedCard]
    rumours: Sequence[Rumour]
    now_unix: float
    host: str = ""


@dataclass(frozen=True, slots=True)
class Reached:
    """The node answered another call of this one, at an address of its card."""

    node_id: str


@dataclass(frozen=True, slots=True)
class ExchangeFailed:
    """`Exchange(node_id)` got no answer, or another node's. Not for `DialAddress`."""

    node_id: str


class ProbeOutcome(StrEnum):
    """What came of an indirect probe."""

    REACHED = "reached"
    UNREACHED = "unreached"  # the helper answered that the node did not
    SILENT = "silent"  # the helper itself did not answer


@dataclass(frozen=True, slots=True)
class ProbeDone:
    """Answers `ProbeVia(node_id, via)`."""

    node_id: str
    via: str
    outcome: ProbeOutcome


@dataclass(frozen=True, slots=True)
class OwnCardChanged:
    """A new card of this node was signed; the answer to `Refute` too."""

    signed: SignedCard


@dataclass(frozen=True, slots=True)
class AddressFound:
    """An address (host:port) may belong to a member: seed peer, multicast DNS."""

    address: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """A farewell of this node; `signature` is over `left_message` of its own card."""

    signature: bytes


@dataclass(frozen=True, slots=True)
class NetworksChanged:
    """The machine's addresses or networks are others than before.

    `usable(card, host)` is what of a card that came from `host` may be called now, if anything.
    """

    usable: Callable[[Card, str], Card | None]


@dataclass(frozen=True, slots=True)
class PutOut:
    """These nodes are members no more: keepers of the fleet say so."""

    node_ids: frozenset[str]


Event = (
    Tick
    | Heard
    | ExchangeSucceeded
    | Reached
    | ExchangeFailed
    | ProbeDone
    | OwnCardChanged
    | AddressFound
    | Leaving
    | NetworksChanged
    | PutOut
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Exchange with the node; `ExchangeSucceeded` or `ExchangeFailed` answers."""

    node_id: str
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class DialAddress:
    """Exchange with whoever answers at host:port; only success is reported."""

    address: str
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class ProbeVia:
    """Ask `via` to probe `node_id` within `timeout_seconds`; `ProbeDone` answers.

    The call to `via` itself may take twice as long before it counts as SILENT.
    """

    node_id: str
    via: str
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Refute:
    """Raise the own incarnation to at least this, durably, then sign a new card.

    `OwnCardChanged` answers; an incarnation that is high enough already needs none.
    """

    incarnation: int


@dataclass(frozen=True, slots=True)
class Changed:
    """A register of the node changed: its card, its liveness or both."""

    node_id: str


@dataclass(frozen=True, slots=True)
class Removed:
    """The node is forgotten: its time is over, or it made way for another."""

    node_id: str


@dataclass(frozen=True, slots=True)
class CloneFound:
    """Two processes announce one node id.

    `must_yield` is true when the node id is this node's own and the other
    process survives: this one has to stop. At most one of the two is told so.
    """

    node_id: str
    must_yield: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """Cards and rumours that were not merged: (index in the event, rule)."""

    sender_id: str
    cards: tuple[tuple[int, str], ...]
    rumours: tuple[tuple[int, str], ...]


Effect = Exchange | DialAddress | ProbeVia | Refute | Changed | Removed | CloneFound | Skipped
