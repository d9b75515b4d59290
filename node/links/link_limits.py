"""Limits of one link, and the payloads that its ways are told apart by."""

from __future__ import annotations

from dataclasses import dataclass

BUDGET_BYTES = 64 << 20
MOST_TENSOR_BYTES = 64 << 20
LARGE_BYTES = 64 << 10
"""Tensors below this stay in chunks: an announcement's way is as long as theirs."""
INLINE_BYTES = 256 << 10
"""Below this the checksum stays in the event loop, 0.1 ms: a thread's help takes longer."""


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Limits of one end.

    `budget_bytes`: bytes sent that may not have arrived, and bytes that arrived and
    nobody received; an end keeps at most both. `most_tensor_bytes`: the largest
    tensor that is taken. `taken_delay_seconds`: how long it may hold back that a small tensor
    arrived, so that one answer does for several.
    """

    budget_bytes: int = BUDGET_BYTES
    most_tensor_bytes: int = MOST_TENSOR_BYTES
    taken_delay_seconds: float = 0.0
