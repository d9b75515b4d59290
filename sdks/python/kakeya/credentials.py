"""How a client shows who it is, and whom it trusts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import grpc

from kakeya.errors import KeyExposed, UsageError

PemSource: TypeAlias = str | PathLike[str] | bytes
"""A path of a PEM file, or its content as bytes."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Encrypted connections.

    `ca_certificates` are those that nodes' certificates must descend from, the
    machine's own when None; `client_certificate` with its `client_key` shows the node
    who the client is, where it asks for that.
    """

    ca_certificates: PemSource | None = None
    client_certificate: PemSource | None = None
    client_key: PemSource | None = None


@dataclass(frozen=True, slots=True)
class Credentials:
    """What every connection of a client uses.

    Raises UsageError for files that cannot be read, and for a certificate without key.
    """

    api_key: str | None = field(default=None, repr=False)
    channel: grpc.ChannelCredentials | None = None

    @classmethod
    def of(cls, api_key: str | None, tls: Tls | None) -> Credentials:
        """From the options of a client."""
        if api_key is not None and not (api_key and api_key.isascii() and api_key.isprintable()):
            raise UsageError("an API key is printable ASCII text, and not empty")
        if tls is None:
            return cls(api_key)
        if (tls.client_certificate is None) != (tls.client_key is None):
            raise UsageError("client_certificate and client_key belong together: give both")
        channel = grpc.ssl_channel_credentials(
            root_certificates=_content(tls.ca_certificates),
            private_key=_content(tls.client_key),
            certificate_chain=_content(tls.client_certificate),
        )
        return cls(api_key, channel)

    def metadata(self, address: str) -> tuple[tuple[str, str], ...]:
        """What each call to `address` (host:port) carries.

        Raises KeyExposed when an API key would leave this machine in plain text.
        """
        if self.api_key is None:
            return ()
        host = address.rpartition(":")[0].strip("[]")
        if self.channel is None and not _is_loopback(host):
            raise KeyExposed(
                f"the API key would travel to {host} in plain text: give tls=Tls(...)",
                metadata={"address": address},
            )
        return (("authorization", f"Bearer {self.api_key}"),)


def _content(source: PemSource | None) -> bytes | None:
    if source is None or isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error}") from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
