"""What promotion remembers between its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from kakeya_fleet.node.links.protocol.changes import ChangeCause
from kakeya_fleet.node.links.protocol.contract import ROAD_NAMES, LinkMode, RoadKind
from kakeya_fleet.node.links.protocol.settings import LinkSettings
from kakeya_fleet.node.links.protocol.trial import RoadTrial, Verdict, size_class


@dataclass(frozen=True, slots=True)
class Standing:
    """What carries the tensors, why since the latest change, and a sentence of it."""

    kind: RoadKind
    cause: ChangeCause
    reason: str


class Phase(Enum):
    """How far the agreement on a road has come, at one end."""

    PLANNING = "planning"
    PROPOSED = "proposed"
    BUILDING = "building"
    BUILT = "built"


@dataclass(slots=True)
class Agreement:
    """A road that both ends are agreeing on; over at `deadline` seconds, if it has one."""

    generation: int
    kind: RoadKind
    phase: Phase = Phase.PLANNING
    deadline: float | None = None
    other_is_ready: bool = False


@dataclass(slots=True)
class StandingRoad:
    """The road that stands since `ready_at`, and what is known of its use.

    `run` counts large tensors in a row that came by it, or below 0 those that did not.
    `is_peers_way` is whether the other end sends by it, as `run` told last.
    """

    generation: int
    kind: RoadKind
    ready_at: float
    received_at: float = float("-inf")
    run: int = 0
    is_peers_way: bool = False
    trials: dict[int, RoadTrial] = field(default_factory=dict)

    def trial(self, byte_count: int) -> RoadTrial:
        """The comparison for tensors of about this size."""
        return self.trials.setdefault(size_class(byte_count), RoadTrial())

    def trial_so_far(self, byte_count: int) -> RoadTrial:
        """The same without beginning one."""
        return self.trials.get(size_class(byte_count)) or RoadTrial()

    @property
    def verdicts(self) -> set[Verdict]:
        """Those of all sizes that were tried."""
        return {trial.verdict for trial in self.trials.values()}


@dataclass(slots=True)
class Pause:
    """How often a kind of road failed in a row, and until when it is put off."""

    failure_count: int = 0
    until: float = 0.0


@dataclass(slots=True)
class Promotion:
    """The state that `step` changes: one end's judgement of one link. Owned by one loop.

    `kinds` are the roads that both ends have and the configuration allows, best first;
    `base` carries the chunks. `newest` is the latest generation that was proposed, `promised`
    the latest whose own part stood, on which the other end may announce tensors, `built` the
    latest that stood at both. `clearing_count` were begun and are not cleared away.
    """

    mode: LinkMode
    kinds: tuple[RoadKind, ...]
    is_caller: bool
    standing: Standing
    base: RoadKind = RoadKind.GRPC
    settings: LinkSettings = field(default_factory=LinkSettings)
    agreement: Agreement | None = None
    road: StandingRoad | None = None
    newest: int = 0
    promised: int = 0
    built: int = 0
    clearing_count: int = 0
    demotion_count: int = 0
    large_seen: int = 0
    large_at: float = 0.0
    pauses: dict[RoadKind, Pause] = field(default_factory=dict)

    @property
    def is_forced(self) -> bool:
        """Whether the configuration names a road, which then carries everything."""
        return self.mode in (LinkMode.LOCAL, LinkMode.RING)


def permitted(mode: LinkMode, kinds: Sequence[RoadKind]) -> tuple[RoadKind, ...]:
    """Those of `kinds` that the configuration allows, best first."""
    if mode is LinkMode.AUTO:
        return tuple(kinds)
    return tuple(kind for kind in kinds if kind.value == mode.value)


def opened(
    mode: LinkMode,
    kinds: Sequence[RoadKind],
    *,
    is_caller: bool,
    base: RoadKind = RoadKind.GRPC,
    settings: LinkSettings | None = None,
) -> Promotion:
    """The state of a link that has just opened, to an end that has `kinds` as well."""
    allowed = permitted(mode, kinds)
    reason = f"opened over {ROAD_NAMES[base]}"
    if mode in (LinkMode.LOCAL, LinkMode.RING):
        missing = "is not ready yet" if allowed else "the two nodes do not both have"
        reason += f"; links = {mode}, which {missing}"
    return Promotion(
        mode,
        allowed,
        is_caller,
        Standing(base, ChangeCause.OPENED, reason),
        base,
        settings if settings is not None else LinkSettings(),
        pauses={kind: Pause() for kind in allowed},
    )
