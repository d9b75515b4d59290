"""Bytes of keys and values that a session holds at most."""

from __future__ import annotations

from dataclasses import replace

from kakeya_fleet.fleet.cards.card import ModelOffer
from kakeya_fleet.fleet.placement.packing import (
    FULL_SINK,
    TILE,
    packed_sink,
    packed_window,
)
from kakeya_fleet.fleet.placement.plan import KvStrategy, PlanRequest

# Slots for tokens that are not committed yet, of the widest forward.
PROVISIONAL_TOKENS = 64
# Caches take memory in segments of at most so many positions, up to a size and above it.
FINE_TOKENS = 256
COARSE_TOKENS = 1024
FINE_LIMIT = 2048


def kv_bytes(offer: ModelOffer, request: PlanRequest) -> int:
    """`kv_bytes_per_token` times the positions that are allocated at most, and what is fixed.

    `full` keeps the whole context (the model's longest, when the request gives
    none), or packs what is behind its latest positions; the others sink + window + 64
    provisional, whatever the context, sink and window as far as the model has positions
    for them. All are rounded up to whole segments. `kv_fixed_bytes` are those of layers with
    a sliding window or a recurrent state.
    """
    packed_bytes = 0
    if request.kv_strategy is KvStrategy.FULL:
        resident = request.context_tokens or offer.context_length
        if request.packing is not None:
            packed_bytes = slots(resident) * request.packing.bytes_per_position(offer)
            window = min(request.full_window_tokens, offer.context_length or resident)
            resident = FULL_SINK + packed_window(window, TILE) + PROVISIONAL_TOKENS
    else:
        is_packed = request.packing is not None and request.kv_strategy is KvStrategy.RESTORED
        tile = TILE if is_packed else 1
        asked = (
            packed_sink(request.sink_tokens, tile),
            packed_window(request.window_tokens, tile),
        )
        positions = offer.context_length or max(asked)
        resident = sum(min(tokens, positions) for tokens in asked) + PROVISIONAL_TOKENS
    return offer.kv_bytes_per_token * slots(resident) + packed_bytes + offer.kv_fixed_bytes


def opening_bytes(offer: ModelOffer, request: PlanRequest) -> int:
    """Bytes that must be free when a session is opened: all, unless its memory grows.

    Of one that may be packed where memory is short, what it takes then.
    """
    if request.grows and request.kv_strategy is KvStrategy.FULL:
        return offer.kv_bytes_per_token * FINE_TOKENS + offer.kv_fixed_bytes
    if request.packing_when_short is not None:
        request = replace(request, packing=request.packing_when_short)
    return kv_bytes(offer, request)


def slots(positions: int) -> int:
    """The positions that are allocated for so many: whole segments."""
    multiple = FINE_TOKENS if positions <= FINE_LIMIT else COARSE_TOKENS
    return -(-positions // multiple) * multiple
