"""What goes by a road that stands, what is known of both ways, and when it is left. Pure."""

from __future__ import annotations

from kakeya_fleet.node.links.protocol.changes import ChangeCause
from kakeya_fleet.node.links.protocol.contract import ROAD_NAMES
from kakeya_fleet.node.links.protocol.promotion_state import Promotion, Standing
from kakeya_fleet.node.links.protocol.settings import LARGE_BYTES
from kakeya_fleet.node.links.protocol.trial import Verdict, size_class

# Tensors in a row by one way that tell by which the other end sends; a trial makes two.
IN_A_ROW = 4


def takes_road(state: Promotion, byte_count: int) -> bool:
    """By which way a tensor goes that sets out now."""
    road = state.road
    if road is None or byte_count == 0:
        return False
    if byte_count < LARGE_BYTES:
        return state.is_forced
    return state.is_forced or road.trial_so_far(byte_count).takes_road


def is_compared(state: Promotion, byte_count: int) -> bool:
    """Whether both ways are being compared for such a tensor: they then travel one by one."""
    if state.road is None or state.is_forced or byte_count < LARGE_BYTES:
        return False
    return state.road.trial_so_far(byte_count).verdict is Verdict.OPEN


def set_out(state: Promotion, byte_count: int) -> None:
    """A large tensor went by the way that `takes_road` said."""
    if state.road is not None and not state.is_forced:
        state.road.trial(byte_count).set_out()


def timed(state: Promotion, byte_count: int, seconds: float, *, by_road: bool) -> None:
    """Compares both ways by what one more tensor took."""
    road = state.road
    if road is None or state.is_forced:
        return
    trial = road.trial(byte_count)
    before = trial.verdict
    trial.add(seconds / byte_count, by_road=by_road)
    if trial.verdict is before:
        return
    size = 1 << size_class(byte_count) - 1
    name, base = ROAD_NAMES[road.kind], ROAD_NAMES[state.base]
    paces = (
        f"{name} takes {_milliseconds(trial.road_pace * size)} for "
        f"{size >> 10} KiB, {base} {_milliseconds(trial.chunk_pace * size)}"
        if trial.verdict is not Verdict.OPEN
        else f"{name} has become slower"
    )
    if Verdict.ROAD in road.verdicts:
        state.standing = Standing(road.kind, ChangeCause.FASTER, paces)
    elif not road.is_peers_way:
        state.standing = Standing(state.base, ChangeCause.SLOWER, paces)


def received(state: Promotion, now: float, *, by_road: bool) -> None:
    """A tensor came: tells by which way the other end sends."""
    road = state.road
    if road is None:
        return
    if by_road:
        road.received_at = now
    road.run = max(1, road.run + 1) if by_road else min(-1, road.run - 1)
    if abs(road.run) < IN_A_ROW or road.is_peers_way == by_road:
        return
    road.is_peers_way = by_road
    kind = road.kind if by_road else state.base
    is_own_way = not by_road and (state.is_forced or Verdict.ROAD in road.verdicts)
    if state.standing.kind is not kind and not is_own_way:
        reason = f"the other end sends by {ROAD_NAMES[kind]}"
        state.standing = Standing(kind, ChangeCause.PEER, reason)


def why_left(state: Promotion, now: float) -> tuple[ChangeCause, str] | None:
    """Why the road is to be left now, by this end; None while it stays."""
    road, settings = state.road, state.settings
    if road is None or state.is_forced:
        return None
    if now - state.large_at >= settings.idle_seconds:
        return ChangeCause.IDLE, f"no large tensor travelled for {settings.idle_seconds:g} s"
    is_received = now - road.received_at < settings.peer_seconds
    if road.verdicts == {Verdict.CHUNKS} and not is_received:
        reason = (
            state.standing.reason
            if state.standing.cause is ChangeCause.SLOWER
            else f"{ROAD_NAMES[road.kind]} is not faster than {ROAD_NAMES[state.base]}"
        )
        return ChangeCause.SLOWER, reason
    return None


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
