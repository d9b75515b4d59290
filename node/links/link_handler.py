"""What serves the links of one purpose on the node that is called."""

from __future__ import annotations

from typing import Protocol

from kakeya.v1 import tensor_pb2 as wire
from node.links.contract import TensorLink


class LinkHandler(Protocol):
    """Serves links of one purpose. Belongs to the event loop's thread."""

    def check(self, request: wire.OpenLinkRequest) -> None:
        """Whether such a link may be opened.

        Raises what OpenLink is answered with: any error of `node.rpc.error_table`.
        """
        ...

    async def serve(self, link: TensorLink, request: wire.OpenLinkRequest) -> None:
        """Serves an open link until it returns, which closes the link.

        `LinkClosed` may escape. Cancelled when the link ends and this goes on.
        """
        ...
