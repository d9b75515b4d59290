"""What serves the links of one purpose on the node that is called."""

from __future__ import annotations

from typing import Protocol

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.contract import TensorLink
from kakeya_fleet.node.links.link_limits import LinkLimits


class LinkHandler(Protocol):
    """Serves links of one purpose. Belongs to the event loop's thread."""

    def check(self, request: wire.OpenLinkRequest) -> LinkLimits:
        """Whether such a link may be opened, and what this node's end of it may take then.

        Raises what OpenLink is answered with: any error of `node.rpc.error_status`.
        """
        ...

    async def serve(self, link: TensorLink, request: wire.OpenLinkRequest) -> None:
        """Serves an open link until it returns, which closes the link.

        `LinkClosed` may escape. Cancelled when the link ends and this goes on.
        """
        ...
