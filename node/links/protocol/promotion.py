"""When a link asks for a road, what goes by it, and when it is left again: one step an event.

Both ends hold a state. In `auto` a road is wanted once large tensors travel; when it
stands, the first of each size go by it and in chunks in turn, and sizes for which it
is not at least a tenth faster stay in chunks. A road that helps no size is left. What
failed or was slower is tried again after 1 s, 2 s, 4 s, up to 5 minutes.

A road belongs to one generation. The caller proposes it, the other end answers, both
build their parts and say READY. Its first fault ends it: both ends say FAILED with what
has arrived, and what went by it and has not goes again in chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from kakeya_fleet.node.links.protocol.changes import ChangeCause
from kakeya_fleet.node.links.protocol.contract import ROAD_NAMES, RoadKind
from kakeya_fleet.node.links.protocol.messages import RoadMessage, RoadStep
from kakeya_fleet.node.links.protocol.promotion_events import (
    Answer,
    Broke,
    Build,
    Built,
    Changed,
    Cleared,
    Drop,
    Effect,
    Event,
    Heard,
    LookAgain,
    Planned,
    Propose,
    Received,
    Resend,
    ResendCorrupt,
    Say,
    SetOut,
    Tick,
    Timed,
    Took,
    Unavailable,
    Use,
)
from kakeya_fleet.node.links.protocol.promotion_state import (
    Agreement,
    Pause,
    Phase,
    Promotion,
    Standing,
    StandingRoad,
)
from kakeya_fleet.node.links.protocol.road_use import received, set_out, timed, why_left
from kakeya_fleet.node.rpc.refusals import TensorOutOfOrder

NONCE_BYTES = 32
MOST_TERMS = 32
MOST_TERM_CHARACTERS = 4096
MOST_REASON_CHARACTERS = 256
MOST_CLEARING = 8
"""Earlier roads that are still being cleared; each may have a process and a segment."""


def step(state: Promotion, event: Event, now: float) -> tuple[Effect, ...]:
    """Changes `state` by one event and returns what to do, in order.

    `now` is in seconds on a monotonic clock; nothing else is read. Raises
    `TensorOutOfOrder` for a message that no other end sends, which ends the link.
    """
    before = state.standing
    effects = _happened(state, event, now)
    # Messages and tensors come one by one: whatever they were, the judgement is due.
    effects += _judge(state, now)
    if state.standing is not before:
        effects.append(Changed(before))
    return tuple(effects)


def due(state: Promotion, now: float) -> float | None:
    """When the next `Tick` is due, in seconds; None while no time makes a difference."""
    if state.agreement is not None:
        return state.agreement.deadline
    if state.road is not None:
        return now + state.settings.judging_seconds
    if not _wants_road(state):
        return None
    return min((pause.until for pause in state.pauses.values()), default=None)


def _happened(state: Promotion, event: Event, now: float) -> list[Effect]:
    match event:
        case Tick():
            return _expire(state, now)
        case LookAgain():
            for pause in state.pauses.values():
                pause.failure_count, pause.until = 0, 0.0
        case Took() | SetOut() | Timed() | Received():
            _travelled(state, event, now)
        case Heard(message):
            return _heard(state, message, now)
        case Planned(generation, terms, nonce):
            return _planned(state, generation, terms, nonce, now)
        case Built(generation):
            return _built(state, generation, now)
        case Broke(generation, reason):
            return _fault(state, generation, reason, now)
        case Unavailable(generation, reason):
            return _unavailable(state, generation, reason, now)
        case Cleared():
            state.clearing_count -= 1
    return []


def _travelled(state: Promotion, event: Took | SetOut | Timed | Received, now: float) -> None:
    """A tensor of `LARGE_BYTES` or more is given, sent, or has come."""
    match event:
        case SetOut(byte_count):
            set_out(state, byte_count)
        case Timed(byte_count, seconds, by_road):
            timed(state, byte_count, seconds, by_road=by_road)
        case Took() | Received():
            state.large_seen += 1
            state.large_at = now
            if isinstance(event, Received):
                received(state, now, by_road=event.by_road)


def _judge(state: Promotion, now: float) -> list[Effect]:
    """Proposes a road when one is wanted, and leaves one that is not."""
    if state.road is not None:
        leaving = why_left(state, now)
        if leaving is None:
            return []
        # It is put off, or idle: nothing is proposed at once.
        return _leave(state, state.road.generation, *leaving, now)
    if not _wants_road(state):
        return []
    kind = next((kind for kind in state.kinds if state.pauses[kind].until <= now), None)
    if kind is None:
        return []
    return _begin(state, kind)


def _wants_road(state: Promotion) -> bool:
    return (
        state.is_caller
        and state.agreement is None
        and state.road is None
        and (state.is_forced or state.large_seen >= state.settings.large_tensors)
    )


def _begin(state: Promotion, kind: RoadKind) -> list[Effect]:
    state.newest += 1
    state.clearing_count += 1
    state.agreement = Agreement(state.newest, kind)
    return [Propose(state.newest, kind)]


def _expire(state: Promotion, now: float) -> list[Effect]:
    """Gives an agreement up whose deadline has passed."""
    agreement, settings = state.agreement, state.settings
    if agreement is None or agreement.deadline is None or now < agreement.deadline:
        return []
    reason = (
        f"the other end did not answer within {settings.answer_seconds:g} s"
        if agreement.phase is Phase.PROPOSED
        else f"the other end's part was never ready within {settings.ready_seconds:g} s"
    )
    return _fault(state, agreement.generation, reason, now)


def _heard(state: Promotion, message: RoadMessage, now: float) -> list[Effect]:
    agreement = state.agreement
    is_agreed = agreement is not None and agreement.generation == message.generation
    match message.step:
        case RoadStep.FAILED:
            return _other_failed(state, message, now)
        case RoadStep.PROPOSE if not state.is_caller:
            return _proposed(state, message)
        case RoadStep.ANSWER if state.is_caller:
            if agreement is None or not is_agreed or agreement.phase is not Phase.PROPOSED:
                return []
            if _are_too_long(message.terms):
                return _fault(state, message.generation, "the other end's terms are too long", now)
            agreement.phase, agreement.deadline = Phase.BUILDING, None
            return [Build(message.generation, message.terms)]
        case RoadStep.READY:
            if agreement is None or not is_agreed:
                return []
            agreement.other_is_ready = True
            return _ready(state, agreement, now)
    raise TensorOutOfOrder(f"step {message.step} of a road is not one of the other end's")


def _proposed(state: Promotion, message: RoadMessage) -> list[Effect]:
    """The caller wants a road. Raises `TensorOutOfOrder`."""
    generation, kind = message.generation, message.kind
    if generation <= state.newest:
        raise TensorOutOfOrder(f"generation {generation} was proposed before")
    if state.road is not None:
        raise TensorOutOfOrder("a road was proposed beside one that stands")
    effects: list[Effect] = []
    if state.agreement is not None:
        effects.append(Drop(state.agreement.generation))
        state.agreement = None
    state.newest = generation
    why_not = ""
    if state.clearing_count >= MOST_CLEARING:
        why_not = f"{state.clearing_count} earlier roads are still being cleared"
    elif kind is None or kind not in state.kinds:
        why_not = f"this end takes no road {kind.value if kind is not None else 'unknown'}"
    elif len(message.nonce) != NONCE_BYTES:
        why_not = f"the nonce has {len(message.nonce)} bytes"
    elif _are_too_long(message.terms):
        why_not = "the other end's terms are too long"
    if why_not or kind is None:
        return [*effects, _failed_message(generation, why_not)]
    state.clearing_count += 1
    state.agreement = Agreement(generation, kind)
    return [*effects, Answer(generation, kind, message.nonce, message.terms)]


def _are_too_long(terms: Mapping[str, str]) -> bool:
    """Whether no builder writes such terms."""
    return len(terms) > MOST_TERMS or any(
        len(text) > MOST_TERM_CHARACTERS for text in chain.from_iterable(terms.items())
    )


def _planned(
    state: Promotion, generation: int, terms: Mapping[str, str], nonce: bytes, now: float
) -> list[Effect]:
    agreement = state.agreement
    if agreement is None or agreement.generation != generation:
        return []
    if not state.is_caller:
        agreement.phase = Phase.BUILDING
        return [Say(RoadMessage(generation, RoadStep.ANSWER, terms=terms))]
    agreement.phase = Phase.PROPOSED
    agreement.deadline = now + state.settings.answer_seconds
    return [Say(RoadMessage(generation, RoadStep.PROPOSE, agreement.kind, nonce, terms))]


def _built(state: Promotion, generation: int, now: float) -> list[Effect]:
    agreement = state.agreement
    if agreement is None or agreement.generation != generation:
        return []
    state.promised = generation
    agreement.phase = Phase.BUILT
    agreement.deadline = now + state.settings.ready_seconds
    return [Say(RoadMessage(generation, RoadStep.READY)), *_ready(state, agreement, now)]


def _ready(state: Promotion, agreement: Agreement, now: float) -> list[Effect]:
    """The road stands, if both ends' parts do."""
    if agreement.phase is not Phase.BUILT or not agreement.other_is_ready:
        return []
    kind = agreement.kind
    state.agreement = None
    state.road = StandingRoad(agreement.generation, kind, ready_at=now)
    state.built, state.large_at = agreement.generation, now
    if state.is_forced:
        reason = f"{ROAD_NAMES[kind]} is ready, and links = {kind}"
        state.standing = Standing(kind, ChangeCause.FORCED, reason)
    return [Use(agreement.generation)]


def _unavailable(state: Promotion, generation: int, reason: str, now: float) -> list[Effect]:
    """Such a road cannot be had here now; that is asked again later."""
    agreement = state.agreement
    if agreement is None or agreement.generation != generation:
        return []
    kind, state.agreement = agreement.kind, None
    _put_off(state, kind, now)
    # What is not wanted by name is no news.
    if state.is_forced:
        missing = f"{ROAD_NAMES[kind]} is not available, and links = {kind}: {reason}"
        state.standing = Standing(state.base, ChangeCause.FAULT, missing)
    if not state.is_caller:
        return [_failed_message(generation, f"{ROAD_NAMES[kind]} is not available: {reason}")]
    # The other end has not heard of it.
    state.newest -= 1
    return []


def _fault(state: Promotion, generation: int, reason: str, now: float) -> list[Effect]:
    kind = _kind_of(state, generation)
    if kind is None:
        return []
    said = f"{ROAD_NAMES[kind]} failed: {reason}"
    return _leave(state, generation, ChangeCause.FAULT, said, now)


def _leave(
    state: Promotion, generation: int, cause: ChangeCause, reason: str, now: float
) -> list[Effect]:
    """Gives a generation up, and says so to the other end."""
    _demote(state, generation, cause, reason, now)
    return [Drop(generation), _failed_message(generation, reason)]


def _other_failed(state: Promotion, message: RoadMessage, now: float) -> list[Effect]:
    generation = message.generation
    if generation == 0:
        return [ResendCorrupt(message.through + 1)]
    effects: list[Effect] = []
    if _kind_of(state, generation) is not None:
        reason = f"the other end: {message.reason[:MOST_REASON_CHARACTERS]}"
        _demote(state, generation, ChangeCause.PEER, reason, now)
        effects = [Drop(generation), _failed_message(generation, "the other end left it")]
    # Both ends have given it up: nothing more arrives by it.
    return [*effects, Resend(generation, message.through)]


def _demote(state: Promotion, generation: int, cause: ChangeCause, reason: str, now: float) -> None:
    """The road that stands, or is agreed on, is none any more: chunks carry the link."""
    road, settings, kind = state.road, state.settings, _kind_of(state, generation)
    if road is not None:
        state.demotion_count += 1
        if now - road.ready_at >= settings.proven_seconds:
            state.pauses[road.kind] = Pause()
    if cause is not ChangeCause.IDLE and kind is not None:
        _put_off(state, kind, now)
    if cause is ChangeCause.IDLE or now - state.large_at >= settings.idle_seconds / 2:
        state.large_seen = 0
    state.agreement = state.road = None
    state.standing = Standing(state.base, cause, reason)


def _kind_of(state: Promotion, generation: int) -> RoadKind | None:
    """That of the road that stands or is agreed on, if it is of this generation."""
    for current in (state.road, state.agreement):
        if current is not None and current.generation == generation:
            return current.kind
    return None


def _put_off(state: Promotion, kind: RoadKind, now: float) -> None:
    pause = state.pauses[kind]
    pause.failure_count += 1
    pause.until = now + state.settings.again.pause(pause.failure_count)


def _failed_message(generation: int, reason: str) -> Say:
    return Say(RoadMessage(generation, RoadStep.FAILED, reason=reason[:MOST_REASON_CHARACTERS]))
