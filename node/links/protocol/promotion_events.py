"""What promotion is told, and what it asks for.

Events go into `node.links.protocol.promotion.step`, effects come out of it. `Propose`
and `Answer` begin a road, `Drop` ends one whatever has become of it; each road that was
begun is answered by one `Cleared`, when nothing of it is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.protocol.messages import RoadMessage
from kakeya_fleet.node.links.protocol.promotion_state import Standing


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; expected when `promotion.due` says so."""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """What this host can have may be more than before: nothing is put off any longer."""


@dataclass(frozen=True, slots=True)
class Took:
    """A tensor of `LARGE_BYTES` or more was given to this end to send."""


@dataclass(frozen=True, slots=True)
class SetOut:
    """A tensor of `LARGE_BYTES` or more set out by the way that `takes_road` said."""

    byte_count: int


@dataclass(frozen=True, slots=True)
class Timed:
    """A tensor of `LARGE_BYTES` or more, alone under way, has arrived at the other end."""

    byte_count: int
    seconds: float
    by_road: bool


@dataclass(frozen=True, slots=True)
class Received:
    """A tensor of `LARGE_BYTES` or more came."""

    by_road: bool


@dataclass(frozen=True, slots=True)
class Heard:
    """The other end took a step of a road."""

    message: RoadMessage


@dataclass(frozen=True, slots=True)
class Planned:
    """The own part of a road is reserved, under these terms; `nonce` is the caller's."""

    generation: int
    terms: Mapping[str, str]
    nonce: bytes = b""


@dataclass(frozen=True, slots=True)
class Built:
    """The own part of a road stands."""

    generation: int


@dataclass(frozen=True, slots=True)
class Broke:
    """A road has ended at this end, or was never built; `reason` is a sentence."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The host has not what a road of that generation takes; `reason` says what is missing."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Cleared:
    """Nothing is left of a road that was begun."""


Event = (
    Tick
    | LookAgain
    | Took
    | SetOut
    | Timed
    | Received
    | Heard
    | Planned
    | Built
    | Broke
    | Unavailable
    | Cleared
)


@dataclass(frozen=True, slots=True)
class Propose:
    """Reserve the caller's part of a road; `Planned`, `Unavailable` or `Broke` answers."""

    generation: int
    kind: RoadKind


@dataclass(frozen=True, slots=True)
class Answer:
    """Reserve the other end's part of what was proposed, then build it; as `Propose`."""

    generation: int
    kind: RoadKind
    nonce: bytes
    terms: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Build:
    """Build what is reserved towards the other end's terms; `Built` or `Broke` answers."""

    generation: int
    terms: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Use:
    """Both ends' parts stand: tensors may go by the road."""

    generation: int


@dataclass(frozen=True, slots=True)
class Drop:
    """End the road, or what was reserved for it."""

    generation: int


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the other end, ahead of tensors; a FAILED with what has arrived until then."""

    message: RoadMessage


@dataclass(frozen=True, slots=True)
class Resend:
    """Both ends have left a road: what it carried behind tensor `through` goes in chunks."""

    generation: int
    through: int


@dataclass(frozen=True, slots=True)
class ResendCorrupt:
    """That tensor came corrupt, and goes in chunks again."""

    tensor_id: int


@dataclass(frozen=True, slots=True)
class Changed:
    """What carries the tensors, or the reason, is another than `before`."""

    before: Standing


Effect = Propose | Answer | Build | Use | Drop | Say | Resend | ResendCorrupt | Changed
