"""The sentences of a plan about archives, with the numbers that decided."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kakeya_fleet.fleet.placement.archive_choice import ArchiveCandidate
from kakeya_fleet.fleet.placement.archive_shares import (
    BOUNDARY_POSITIONS,
    ArchiveShare,
    needed_bytes,
)
from kakeya_fleet.fleet.placement.cost_model import alone_tokens_per_second
from kakeya_fleet.fleet.placement.predicted_pair import Server
from kakeya_fleet.fleet.quantities import bytes_text, seconds_text
from kakeya_fleet.fleet.views.node_view import UNLIMITED_BYTES

NO_ARCHIVE = (
    "No live node has an archive for what is evicted: the session cannot be opened before one "
    "is there; start one with `fleet join --serve archive=1GiB`."
)

LEAST_GAIN = 1.1
"""Full attention that is faster by less is not worth its memory."""


def choice_reason(
    shares: Sequence[ArchiveShare], candidates: Sequence[ArchiveCandidate], bytes_per_position: int
) -> str:
    """Where the evicted positions go."""
    needed = needed_bytes(shares[-1].end, bytes_per_position)
    if len(shares) == 1:
        chosen = shares[0].candidate
        return (
            f"{chosen.reason} It takes {bytes_text(needed)} of the "
            f"{bytes_text(chosen.free_bytes)} free there."
        )
    ranges = [
        f"{share.candidate.node_name} keeps positions {share.first:,} to {share.end - 1:,} "
        f"({bytes_text(needed_bytes(share.end - _chunk_start(share), bytes_per_position))} of "
        f"{bytes_text(share.candidate.free_bytes)} free)"
        for share in shares
    ]
    alone = [one.node_name for one in candidates if one.free_bytes >= needed]
    why = (
        f"Together they are nearer than {' and '.join(alone)} with room for all of it"
        if alone
        else f"No archive alone has {bytes_text(needed)} free for what is evicted"
    )
    return f"{why}: {', '.join(ranges)}."


def cost_reason(
    verifier: Server, shares: Sequence[ArchiveShare], wait_seconds: float | None, *, evicts: bool
) -> str:
    """What a step waits for the archives."""
    name, layers = verifier.card.name, verifier.offer.history_layer_count
    if not evicts:
        return "The planned context stays in sink and window: no step waits for an archive."
    if wait_seconds is None:
        far = [s.candidate.node_name for s in shares if s.candidate.round_trip_seconds is None]
        return (
            f"The way from {name} to {' and '.join(far)} is not measured: what a step waits for "
            "the archive is not counted."
        )
    if not layers:
        return (
            f"{name} does not tell how many layers of {verifier.offer.model_id} ask the archive: "
            "what a step waits for it is not counted."
        )
    each = "for it" if len(shares) == 1 else f"for the {len(shares)} archives in turn"
    added = layers * wait_seconds
    step = 1.0 / alone_tokens_per_second(verifier.offer.step_costs)
    return (
        f"Each of {layers} layers waits {seconds_text(wait_seconds)} {each}: a step of one token "
        f"takes {seconds_text(step + added)} instead of {seconds_text(step)}."
    )


def others_reasons(
    candidates: Sequence[ArchiveCandidate],
    shares: Sequence[ArchiveShare],
    verifier: Server,
    bytes_per_position: int,
) -> tuple[str, ...]:
    """Why not each archive that was not chosen, the best of them first."""
    chosen = {share.candidate.node_id for share in shares}
    needed = needed_bytes(shares[-1].end, bytes_per_position)
    others = [one for one in candidates if one.node_id not in chosen]
    others.sort(key=lambda one: _rank(one, needed))
    return tuple(_other_text(one, needed, verifier) for one in others)


def no_room_reasons(
    candidates: Sequence[ArchiveCandidate], verifier: Server, end: int, bytes_per_position: int
) -> tuple[str, ...]:
    """That the planned context fits into no archive, nor into all together; the first is asked."""
    needed = needed_bytes(end, bytes_per_position)
    first, *others = candidates
    free = sum(one.free_bytes for one in candidates)
    have = "All archives together have" if others else f"The archive of {first.node_name} has"
    return (
        f"{have} {bytes_text(free)} free, {bytes_text(needed)} are needed for {end:,} evicted "
        f"positions: a session can begin on {first.node_name}, but not grow that long; start "
        "another with `fleet join --serve archive=1GiB`.",
        *(
            _other_text(one, needed, verifier)
            for one in sorted(others, key=lambda one: one.node_id)
        ),
    )


def full_reason(
    verifier: Server,
    context_tokens: int,
    full_bytes: int,
    free_bytes: int,
    *,
    times_as_fast: float | None,
) -> str:
    """What full attention would take in place of the archive, and whether the archive pays.

    `times_as_fast` is full attention's predicted speed over the restored one, None
    when what a step waits for the archive is not known.
    """
    name = verifier.card.name
    what = f"full attention to {context_tokens:,} tokens takes {bytes_text(full_bytes)}"
    if free_bytes >= UNLIMITED_BYTES:
        return f"{what[0].upper()}{what[1:]} on {name}."
    if full_bytes > free_bytes:
        return (
            f"The archive is needed: {what}, {name} has {bytes_text(free_bytes)} free for keys "
            "and values."
        )
    fits = f"{what} and fits the {bytes_text(free_bytes)} free on {name}"
    if times_as_fast is None:
        return f"{fits[0].upper()}{fits[1:]}: without an archive no step waits for one; --kv full."
    if times_as_fast < LEAST_GAIN:
        return (
            f"The archive costs little: {fits}, but is predicted only "
            f"{times_as_fast:.2f} times as fast."
        )
    return (
        f"The archive does not pay: {fits}: it is predicted {times_as_fast:.2f} times as fast; "
        "use --kv full."
    )


def _other_text(other: ArchiveCandidate, needed: int, verifier: Server) -> str:
    layers, trip = verifier.offer.history_layer_count, other.round_trip_seconds
    name = f"Not {other.node_name}"
    if other.free_bytes < needed:
        return f"{name}: {bytes_text(other.free_bytes)} free of {bytes_text(needed)} needed."
    if other.is_own:
        return f"{name} itself: its memory is what the session is to save."
    if trip is None:
        return f"{name}: the way there is not measured."
    wait = f"{seconds_text(layers * trip)} a step" if layers else f"{seconds_text(trip)} a layer"
    return f"{name}: {wait} would be waited for it, round trip {seconds_text(trip)}."


def _rank(other: ArchiveCandidate, needed: int) -> tuple[bool, bool, float, str]:
    trip = math.inf if other.round_trip_seconds is None else other.round_trip_seconds
    return other.free_bytes < needed, other.is_own, trip, other.node_id


def _chunk_start(share: ArchiveShare) -> int:
    """Where the range's first chunk begins: the first range leaves out the sink."""
    return share.first - share.first % BOUNDARY_POSITIONS
