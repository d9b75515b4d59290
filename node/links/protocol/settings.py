"""The times and bounds of one end of a link, and the payloads its ways are told apart by."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.node.admission.limits import LinkEndLimits
from kakeya_fleet.node.config.backoff import Backoff

_BOUNDS = LinkEndLimits()

LARGE_BYTES = 64 << 10
"""Tensors below this stay in chunks: an announcement's way is as long as theirs."""
INLINE_BYTES = 256 << 10
"""Below this the checksum stays in the event loop, 0.1 ms: a thread's help takes longer."""


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Limits of one end, set by what the link is for."""

    budget_bytes: int = _BOUNDS.budget_bytes
    """Bytes sent that may not have arrived, and bytes that arrived and nobody received.

    An end keeps at most both, and one tensor of each on its way.
    """

    most_tensor_bytes: int = _BOUNDS.tensor_bytes
    """The largest tensor that is taken."""

    taken_delay_seconds: float = 0.0
    """How long it may hold back that a small tensor arrived: one answer does for several."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """When roads are wanted and left, and how long is waited for what."""

    large_tensors: int = 4
    """Tensors of `LARGE_BYTES` that make a road worth its processes."""

    again: Backoff = Backoff(1.0, 300.0)
    """What failed is tried again after these pauses."""

    proven_seconds: float = 60.0
    """A road that stood so long before it failed begins anew with the shortest pause."""

    idle_seconds: float = 120.0
    """Without a large tensor for so long a road is left."""

    peer_seconds: float = 30.0
    """The other end sends by a road while a tensor came by it within so long."""

    judging_seconds: float = 5.0
    """How often a road that stands is asked whether it is still wanted."""

    answer_seconds: float = 15.0
    """From a proposal to its answer: the other end reserves memory or a port."""

    ready_seconds: float = 60.0
    """From this end's READY to the other's: a ring takes seconds to start, more on a busy host."""

    transfer_seconds: float = 2.0
    """A transfer of n bytes may take this and n / `slowest_bytes_per_second`.

    An idle host answers at once, a busy one shares its cores.
    """

    slowest_bytes_per_second: float = 32e6
    """A road that is slower than this has stopped."""

    closing_seconds: float = 1.0
    """What the other end gets to end its stream in order, after which it is cut off."""

    def deadline(self, byte_count: int) -> float:
        """Seconds that a transfer of so many bytes may take."""
        return self.transfer_seconds + byte_count / self.slowest_bytes_per_second
