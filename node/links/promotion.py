"""When a link asks for a road, what goes by it, and when it is left again. Pure.

Both ends hold one. In `auto` a road is wanted once large tensors travel; when it
stands, the first of each size go by it and in chunks in turn, and sizes for which it
is not at least a tenth faster stay in chunks. A road that helps no size is left. What
failed or was slower is tried again after 1 s, 2 s, 4 s, up to 5 minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kakeya_fleet.node.links.contract import RoadKind
from kakeya_fleet.node.links.link_limits import LARGE_BYTES
from kakeya_fleet.node.links.link_log import ChangeCause
from kakeya_fleet.node.links.road_trial import RoadTrial, Verdict, size_class

LARGE_TENSORS = 4
"""Large tensors that make a road worth its processes."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 300.0
PROVEN_SECONDS = 60.0
"""A road that stood so long before it failed begins anew with the shortest pause."""
IDLE_SECONDS = 120.0
"""Without a large tensor for so long a road is left."""
PEER_SECONDS = 30.0
"""The other end sends by a road while a tensor came by it within so long."""
# Tensors in a row by one way that tell by which the other end sends; a trial makes two.
IN_A_ROW = 4

ROAD_NAMES = {
    RoadKind.GRPC: "gRPC",
    RoadKind.LOCAL: "shared memory",
    RoadKind.RING: "the ring",
}


class LinkMode(StrEnum):
    """What the configuration says of roads."""

    AUTO = "auto"
    GRPC = "grpc"
    LOCAL = "local"
    RING = "ring"


@dataclass(frozen=True, slots=True)
class Standing:
    """What carries the tensors, why since the latest change, and a sentence of it."""

    kind: RoadKind
    cause: ChangeCause
    reason: str


@dataclass(slots=True)
class _Pause:
    failures: int = 0
    until: float = 0.0


def permitted(mode: LinkMode, kinds: Sequence[RoadKind]) -> tuple[RoadKind, ...]:
    """Those of `kinds` that the configuration allows, best first."""
    if mode is LinkMode.AUTO:
        return tuple(kinds)
    return tuple(kind for kind in kinds if kind.value == mode.value)


class Promotion:
    """One end's judgement of one link. Seconds are those of any one clock."""

    def __init__(
        self,
        mode: LinkMode,
        kinds: Sequence[RoadKind],
        *,
        is_caller: bool,
        base: RoadKind = RoadKind.GRPC,
    ) -> None:
        """`kinds` are the roads that both ends have, best first; `base` carries the chunks."""
        self._mode = mode
        self._kinds = permitted(mode, kinds)
        self._is_caller = is_caller
        self._base = base
        opened = f"opened over {_named(base)}"
        if self.is_forced:
            missing = "is not ready yet" if self._kinds else "the two nodes do not both have"
            opened += f"; links = {mode}, which {missing}"
        self._standing = Standing(base, ChangeCause.OPENED, opened)
        self._pauses = {kind: _Pause() for kind in self._kinds}
        self._road: RoadKind | None = None
        self._ready_at = 0.0
        self._is_building = False
        self._large_seen = 0
        self._large_at = 0.0
        self._received_by_road_at = float("-inf")
        self._run = 0
        self._peer_uses_road = False
        self._trials: dict[int, RoadTrial] = {}

    @property
    def standing(self) -> Standing:
        """What carries the tensors now; another object after each change."""
        return self._standing

    @property
    def is_forced(self) -> bool:
        """Whether the configuration names a road, which then carries everything."""
        return self._mode in (LinkMode.LOCAL, LinkMode.RING)

    def proposal(self, now: float) -> RoadKind | None:
        """The road to propose now, if any."""
        if not self._wants_road():
            return None
        return next((kind for kind in self._kinds if self._pauses[kind].until <= now), None)

    def next_proposal(self) -> float | None:
        """When `proposal` has to be asked again; None while no time makes a difference."""
        if not self._wants_road():
            return None
        return min((pause.until for pause in self._pauses.values()), default=None)

    def saw(self, byte_count: int, now: float) -> None:
        """A tensor travels, in either direction."""
        if byte_count >= LARGE_BYTES:
            self._large_seen += 1
            self._large_at = now

    def building(self) -> None:
        """A road is being agreed on."""
        self._is_building = True

    def ready(self, kind: RoadKind, now: float) -> None:
        """A road stands."""
        self._is_building = False
        self._road, self._ready_at, self._large_at = kind, now, now
        self._trials = {}
        self._received_by_road_at = float("-inf")
        self._run, self._peer_uses_road = 0, False
        if self.is_forced:
            self._stand(kind, ChangeCause.FORCED, f"{_named(kind)} is ready, and links = {kind}")

    def failed(self, kind: RoadKind, cause: ChangeCause, reason: str, now: float) -> None:
        """A road was left, or never stood."""
        if self._road is not None and now - self._ready_at >= PROVEN_SECONDS:
            self._pauses[kind] = _Pause()
        if cause is not ChangeCause.IDLE:
            self._put_off(kind, now)
        if cause is ChangeCause.IDLE or now - self._large_at >= IDLE_SECONDS / 2:
            self._large_seen = 0
        self._is_building = False
        self._road = None
        self._stand(self._base, cause, reason)

    def unavailable(self, kind: RoadKind, reason: str, now: float) -> None:
        """Such a road cannot be had here now; that is asked again later."""
        self._put_off(kind, now)
        # What is not wanted by name is no news.
        if self.is_forced and self._road is None:
            missing = f"{_named(kind)} is not available, and links = {kind}: {reason}"
            self._stand(self._base, ChangeCause.FAULT, missing)

    def look_again(self) -> None:
        """What this host can have may be more than before: nothing is put off any longer."""
        for pause in self._pauses.values():
            pause.failures, pause.until = 0, 0.0

    def takes_road(self, byte_count: int) -> bool:
        """By which way a tensor that sets out now goes; each call is a tensor."""
        if self._road is None or byte_count == 0:
            return False
        if self.is_forced:
            return True
        return byte_count >= LARGE_BYTES and self._trial(byte_count).takes_road()

    def is_trying(self, byte_count: int) -> bool:
        """Whether both ways are being compared for such a tensor: they then travel one by one."""
        if self._road is None or self.is_forced or byte_count < LARGE_BYTES:
            return False
        return self._trial(byte_count).verdict is Verdict.OPEN

    def measured(self, byte_count: int, seconds: float, *, by_road: bool) -> None:
        """A tensor arrived that set out while the road stood."""
        if self._road is None or self.is_forced or byte_count < LARGE_BYTES:
            return
        trial = self._trial(byte_count)
        before = trial.verdict
        trial.add(seconds / byte_count, by_road=by_road)
        if trial.verdict is before:
            return
        size = 1 << size_class(byte_count) - 1
        paces = (
            f"{_named(self._road)} takes {_milliseconds(trial.road_pace * size)} for "
            f"{size >> 10} KiB, {_named(self._base)} {_milliseconds(trial.chunk_pace * size)}"
            if trial.verdict is not Verdict.OPEN
            else f"{_named(self._road)} has become slower"
        )
        if any(each.verdict is Verdict.ROAD for each in self._trials.values()):
            self._stand(self._road, ChangeCause.FASTER, paces)
        elif not self._peer_uses_road:
            self._stand(self._base, ChangeCause.SLOWER, paces)

    def received(self, byte_count: int, now: float, *, by_road: bool) -> None:
        """A tensor came: tells by which way the other end sends."""
        if by_road:
            self._received_by_road_at = now
        if self._road is None or byte_count < LARGE_BYTES:
            return
        self._run = max(1, self._run + 1) if by_road else min(-1, self._run - 1)
        if abs(self._run) < IN_A_ROW or self._peer_uses_road == by_road:
            return
        self._peer_uses_road = by_road
        if self._standing.kind is (self._road if by_road else self._base):
            return
        if by_road:
            self._stand(
                self._road, ChangeCause.PEER, f"the other end sends by {_named(self._road)}"
            )
        elif not self.is_forced and not self._is_used():
            self._stand(
                self._base, ChangeCause.PEER, f"the other end sends by {_named(self._base)}"
            )

    def leave(self, now: float) -> tuple[ChangeCause, str] | None:
        """Why the road is to be left now, by this end; None while it stays."""
        if self._road is None or self.is_forced:
            return None
        if now - self._large_at >= IDLE_SECONDS:
            return ChangeCause.IDLE, f"no large tensor travelled for {IDLE_SECONDS:g} s"
        verdicts = {trial.verdict for trial in self._trials.values()}
        is_received = now - self._received_by_road_at < PEER_SECONDS
        if verdicts == {Verdict.CHUNKS} and not is_received:
            reason = (
                self._standing.reason
                if self._standing.cause is ChangeCause.SLOWER
                else f"{_named(self._road)} is not faster than {_named(self._base)}"
            )
            return ChangeCause.SLOWER, reason
        return None

    def _wants_road(self) -> bool:
        return (
            self._is_caller
            and not self._is_building
            and self._road is None
            and (self.is_forced or self._large_seen >= LARGE_TENSORS)
        )

    def _put_off(self, kind: RoadKind, now: float) -> None:
        pause = self._pauses.get(kind)
        if pause is None:
            return
        pause.failures += 1
        # Exponents beyond this are longer than the longest pause.
        doubled = FIRST_PAUSE_SECONDS * 2.0 ** min(pause.failures - 1, 16)
        pause.until = now + min(LONGEST_PAUSE_SECONDS, doubled)

    def _is_used(self) -> bool:
        return any(trial.verdict is Verdict.ROAD for trial in self._trials.values())

    def _trial(self, byte_count: int) -> RoadTrial:
        return self._trials.setdefault(size_class(byte_count), RoadTrial())

    def _stand(self, kind: RoadKind, cause: ChangeCause, reason: str) -> None:
        self._standing = Standing(kind, cause, reason)


def _named(kind: RoadKind) -> str:
    return ROAD_NAMES[kind]


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
