"""What the sender, the receiver and the roads of one end share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from kakeya_fleet.node.links.ends.link_counts import LinkCounts
from kakeya_fleet.node.links.protocol.chunks import crc32c
from kakeya_fleet.node.links.protocol.promotion_events import Event
from kakeya_fleet.node.links.protocol.promotion_state import Promotion
from kakeya_fleet.node.links.protocol.settings import INLINE_BYTES, LinkLimits


@dataclass(frozen=True, slots=True)
class SharedParts:
    """`promotion` is read by all, and changed by `observe` alone, which takes an event.

    `fail` ends the link with an error; `clock` gives monotonic seconds.
    """

    link_id: str
    promotion: Promotion
    limits: LinkLimits
    counts: LinkCounts
    observe: Callable[[Event], None]
    fail: Callable[[Exception], None]
    clock: Callable[[], float]


async def checksum(data: bytes | memoryview) -> int:
    """CRC-32C, that of many bytes in another thread."""
    if len(data) < INLINE_BYTES:
        return crc32c(data)
    return await asyncio.to_thread(crc32c, data)
