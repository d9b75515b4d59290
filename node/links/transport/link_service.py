"""What serves the links of one purpose on the node that is called."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol

from kakeya_fleet.node.links.ends.tensor_receiver import TakeTensor
from kakeya_fleet.node.links.protocol.contract import TensorLink
from kakeya_fleet.node.links.protocol.opening import EncoderDescription, LinkRequest
from kakeya_fleet.node.links.protocol.settings import LinkLimits


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LinkService:
    """What serves one link, and what this node's end of it may take: `memory_bytes` at most.

    `serve` is given the open link and whether its caller wants the encoder's weights; the
    link is closed when it returns, and it is cancelled when the link ends and it goes on.
    `LinkClosed` may escape. `take` gets each tensor in place of `receive`.
    """

    limits: LinkLimits
    memory_bytes: int
    serve: Callable[[TensorLink, bool], Coroutine[None, None, None]]
    take: TakeTensor | None = None
    encoder: EncoderDescription | None = None


class LinkHandler(Protocol):
    """Serves links of one purpose. Belongs to the event loop's thread."""

    def open(self, request: LinkRequest) -> LinkService:
        """What serves such a link.

        Raises what OpenLink is answered with: any error of `node.rpc.error_status`.
        """
        ...
