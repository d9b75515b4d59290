"""Channels to other nodes: the one place that says whether they are encrypted, and for whom."""

from __future__ import annotations

import grpc
import grpc.aio

from kakeya_fleet.node.rpc.grpc_settings import client_options
from kakeya_fleet.node.trust.certificates import named_node
from kakeya_fleet.node.trust.tls import channel_credentials, channel_options, shown_credentials
from kakeya_fleet.node.trust.trust import Trust


class Channels:
    """Opens channels: in plain text where the fleet has no authority, else by mutual TLS.

    Who opens a channel closes it. One that is open keeps the certificates of its opening.
    """

    def __init__(self, trust: Trust | None = None) -> None:
        self._trust = trust

    @property
    def is_encrypted(self) -> bool:
        """Whether others than members are refused."""
        return self._trust is not None

    def open(self, address: str, node_id: str = "") -> grpc.aio.Channel:
        """To the node at host:port, for asyncio; to any member there when no node is named."""
        if self._trust is None:
            return grpc.aio.insecure_channel(address, options=client_options())
        options = (*client_options(), *channel_options(node_id))
        return grpc.aio.secure_channel(address, channel_credentials(self._trust), options=options)

    def open_unproven(self, address: str, certificate: bytes) -> grpc.aio.Channel:
        """To whoever shows the certificate, DER, at host:port: what it says is to prove itself.

        Raises `BadCertificate` for one that names no node.
        """
        assert self._trust is not None
        options = (*client_options(), *channel_options(named_node(certificate)))
        credentials = shown_credentials(self._trust, certificate)
        return grpc.aio.secure_channel(address, credentials, options=options)

    def open_blocking(self, address: str, node_id: str = "") -> grpc.Channel:
        """The same for threads."""
        if self._trust is None:
            return grpc.insecure_channel(address, options=client_options())
        options = (*client_options(), *channel_options(node_id))
        return grpc.secure_channel(address, channel_credentials(self._trust), options=options)
