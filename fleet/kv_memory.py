"""Bytes of keys and values that a session holds at most."""

from __future__ import annotations

from fleet.card import ModelOffer
from fleet.plan import KvStrategy, PlanRequest

# Slots for a block that is not committed yet: the width of a verify forward.
PROVISIONAL_TOKENS = 16
# Caches are allocated in segments of at most so many positions.
SEGMENT_TOKENS = 256


def kv_bytes(offer: ModelOffer, request: PlanRequest) -> int:
    """`kv_bytes_per_token` times the positions that are allocated at most.

    `full` keeps the whole context (the model's longest, when the request gives
    none); the others sink + window + 16 provisional, whatever the context. Both
    are rounded up to whole segments.
    """
    if request.kv_strategy is KvStrategy.FULL:
        resident = request.context_tokens or offer.context_length
    else:
        resident = request.sink_tokens + request.window_tokens + PROVISIONAL_TOKENS
    segments = -(-resident // SEGMENT_TOKENS)
    return offer.kv_bytes_per_token * segments * SEGMENT_TOKENS
