"""At which address a client calls another node than its own, and whether it may.

Tokens go to members of the fleet alone, where it has an authority: by TLS, in which a node proves
that it is one, and never in plain text because an address was told.
"""

from __future__ import annotations

from kakeya.credentials import Credentials
from kakeya.errors import ModelServedElsewhere
from kakeya.watch_values import NodeStatus


class Ways:
    """Those of a client with these credentials."""

    def __init__(self, credentials: Credentials) -> None:
        self._has_tls = credentials.tls is not None
        self._shows_key_alone = credentials.shows_key_alone

    def to(self, node: NodeStatus) -> str:
        """host:port of a node that was told of; empty when this client has no way to it."""
        is_member = node.card is not None and bool(node.card.certificate)
        return self._chosen(node.address, node.applications_address, is_member=is_member)

    def named_by(self, error: ModelServedElsewhere) -> str:
        """The same of the node that serves the model."""
        is_member = bool(error.metadata.get("encrypted"))
        return self._chosen(error.address, error.applications_address, is_member=is_member)

    def _chosen(self, address: str, applications_address: str, *, is_member: bool) -> str:
        if not is_member:
            return address
        if not self._has_tls:
            return ""
        return applications_address if self._shows_key_alone else address
