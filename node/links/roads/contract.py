"""The contract of roads: they carry the bytes of tensors that the control stream announces.

Both ends agree over the control stream, in three messages: the caller's proposal,
the other end's answer, and READY of each. A road belongs to one generation of one
link. Its first fault ends it for ever; a new one is built as a new generation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kakeya_fleet.node.links.protocol.contract import RoadKind

MIN_NONCE_BYTES = 16
MAX_NONCE_BYTES = 64

Terms = Mapping[str, str]
"""What one end tells the other of a road: addresses, names, never the nonce itself."""


class RoadFailed(Exception):
    """The road has ended, or was never built; the message is a sentence for people."""


def check_nonce(nonce: bytes) -> None:
    """Checks a road's secret, which the control stream gave to both of its ends.

    Raises `RoadFailed` when it is too short to be one, or too long for a segment.
    """
    if not MIN_NONCE_BYTES <= len(nonce) <= MAX_NONCE_BYTES:
        raise RoadFailed(
            f"a nonce has {MIN_NONCE_BYTES} to {MAX_NONCE_BYTES} bytes, not {len(nonce)}"
        )


class Road(Protocol):
    """A built road between two agents. Belongs to the event loop's thread, which it never holds up.

    Each direction is for itself, and in order. Every call has a deadline of its
    own and raises `RoadFailed` when it passes, and at once when the other end or
    what carries it has died.
    """

    @property
    def kind(self) -> RoadKind:
        """What it is."""
        ...

    async def send(self, data: memoryview, *, seconds: float) -> None:
        """Hands over the bytes of one tensor; `data` may change when it returns.

        That it returns says nothing of their arrival.
        """
        ...

    async def receive(self, byte_count: int, *, seconds: float) -> memoryview:
        """The bytes of the next tensor, which has been announced; the caller's own."""
        ...

    async def close(self) -> None:
        """Ends it, with every process, port, segment and file of it. Never raises."""
        ...


class RoadPlan(Protocol):
    """One end's part of a road that is being agreed on."""

    @property
    def terms(self) -> Terms:
        """For the other end."""
        ...

    async def build(self, other: Terms) -> Road:
        """The road, proven to reach the end that knows the nonce. Raises `RoadFailed`.

        Bounded in time. Nothing is left behind when it raises or is cancelled.
        """
        ...

    async def abandon(self) -> None:
        """Frees what was reserved when it is not built. Never raises."""
        ...


class RoadBuilder(Protocol):
    """Builds roads of one kind on this node."""

    @property
    def kind(self) -> RoadKind:
        """Of which kind."""
        ...

    @property
    def available(self) -> str:
        """Empty when this host has what it takes, else a sentence that says what is missing."""
        ...

    async def propose(self, nonce: bytes) -> RoadPlan:
        """The caller's part. Raises `RoadFailed`."""
        ...

    async def answer(self, nonce: bytes, proposed: Terms) -> RoadPlan:
        """The other end's part of what was proposed. Raises `RoadFailed`."""
        ...
