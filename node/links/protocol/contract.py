"""The contract of links: tensors between two nodes, in order, each exactly once.

A link is opened for one purpose and lives as long as its control stream. Bytes
take one of several roads: chunks on the control stream itself (`GRPC`), which is
always there; a shared-memory segment of two processes of one host (`LOCAL`); a
ring of two child processes (`RING`). A tensor is kept by its sender until the
receiver has said that it has it, so that a road may fail at any moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kakeya_fleet.node.links.protocol.tensor import WireTensor


class RoadKind(StrEnum):
    """What carries a link's bytes."""

    GRPC = "grpc"
    RING = "ring"
    LOCAL = "local"


ROAD_NAMES = {
    RoadKind.GRPC: "gRPC",
    RoadKind.LOCAL: "shared memory",
    RoadKind.RING: "the ring",
}
"""In sentences for people."""


class LinkMode(StrEnum):
    """What the configuration says of roads: the link chooses, or one is forced."""

    AUTO = "auto"
    GRPC = "grpc"
    LOCAL = "local"
    RING = "ring"


class LinkPurpose(StrEnum):
    """What a link is for."""

    FEATURES = "features"


@dataclass(frozen=True, slots=True)
class LinkState:
    """What carries a link now, and why; and what it has carried.

    `generation` counts the roads that were built for it, 0 while there was none but
    gRPC. `bytes_per_second` is that of the latest tensors, 0.0 before any was
    measured. `reason` is a sentence about the latest change, made `changed_at`
    monotonic seconds. `tensor_count` and `byte_count` are of both directions,
    `demotion_count` is how often a road was left.
    """

    kind: RoadKind
    generation: int
    bytes_per_second: float
    reason: str
    changed_at: float
    tensor_count: int
    byte_count: int
    demotion_count: int


class LinkClosed(Exception):
    """The link has ended, by either end or with its control stream; the message says why."""


class TensorLink(Protocol):
    """One end of an open link. Belongs to the event loop's thread."""

    @property
    def link_id(self) -> str:
        """Names the link; a secret of its two ends."""
        ...

    @property
    def peer_node_id(self) -> str:
        """The node at the other end."""
        ...

    @property
    def purpose(self) -> LinkPurpose:
        """What it is for."""
        ...

    @property
    def state(self) -> LinkState:
        """What carries it now."""
        ...

    async def send(self, tensor: WireTensor) -> None:
        """Takes a tensor, whose bytes must not change before the other end has them.

        Waits while more than the link's byte budget is under way. Returns before
        it has arrived. Raises `LinkClosed`.
        """
        ...

    async def flush(self) -> None:
        """Waits until the other end has all that was sent. Raises `LinkClosed`."""
        ...

    async def receive(self) -> WireTensor:
        """The next tensor of the other end.

        One whose bytes came corrupt was asked for again. Raises `LinkClosed`.
        """
        ...

    async def wait_ended(self) -> None:
        """Waits until the link has ended."""
        ...

    async def close(self) -> None:
        """Ends the link at both ends, and every process and segment that carried it."""
        ...
