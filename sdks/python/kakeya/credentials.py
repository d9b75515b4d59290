"""How a client shows who it is, and whom it trusts."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import grpc

from kakeya.certificate_dates import validity
from kakeya.errors import KeyExposed, UsageError

PemSource: TypeAlias = str | PathLike[str] | bytes | Callable[[], bytes]
"""A path of a PEM file, its content as bytes, or a function that gives those.

Files and functions are asked again for every new connection: a certificate that was renewed
counts from then on.
"""


MEMBER_NAME = "member.kakeya"
"""A DNS name in the certificate of every member of a fleet with an authority."""


def name_of_node(node_id: str) -> str:
    """The DNS name of one node, beside that: its id in base32, RFC 4648, without padding."""
    try:
        digest = bytes.fromhex(node_id)
    except ValueError:
        raise UsageError(f"{node_id[:80]!r} is no node's id") from None
    return f"{base64.b32encode(digest).decode('ascii').rstrip('=').lower()}.node.kakeya"


@dataclass(frozen=True, slots=True)
class Tls:
    """Encrypted connections.

    `ca_certificates` are those that nodes' certificates must descend from, the
    machine's own when None; `client_certificate` with its `client_key` shows the node
    who the client is, where it asks for that. `server_name` is the DNS name that nodes'
    certificates must have, the host of each address when None.
    """

    ca_certificates: PemSource | None = None
    client_certificate: PemSource | None = None
    client_key: PemSource | None = field(default=None, repr=False)
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """What shows the client's own node, the one at its address, that it is called by its owner.

    `key` travels to no other node. `server_name` is the DNS name that the certificate of this
    one node must have, that of `Tls` when None.
    """

    key: str = field(repr=False)
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class Pems:
    """What one connection is encrypted with."""

    ca_certificates: bytes | None
    client_certificate: bytes | None
    client_key: bytes | None = field(repr=False)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a channel of gRPC."""
        return grpc.ssl_channel_credentials(
            self.ca_certificates, self.client_key, self.client_certificate
        )

    def doubt(self) -> tuple[str, str] | None:
        """What else than its absence can keep a node from answering this certificate, and a mend.

        TLS 1.3 tells a client nothing of why its certificate was refused. None without one.
        """
        if self.client_certificate is None:
            return None
        now, dates = datetime.now(UTC), validity(self.client_certificate)
        until = ""
        if dates is not None:
            begins, ends = dates
            clock = f"by this machine's clock, {now:%F %T} UTC"
            if now > ends:
                cause = f"this client's certificate ended at {ends:%F %T} UTC {clock}"
                return cause, "renew it, or set the clock"
            if now < begins:
                cause = f"this client's certificate is good from {begins:%F %T} UTC on {clock}"
                return cause, "set the clock"
            until = f", good until {ends:%F %T} UTC,"
        cause = f"it is not there, or one side takes the other's certificate for none: ours{until}"
        return cause, "is `fleet join` running there, in the same fleet, with a right clock?"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What every connection of a client uses.

    Raises UsageError for files that cannot be read, and for a certificate without key.
    """

    api_key: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    owner: Owner | None = None

    @classmethod
    def of(cls, api_key: str | None, tls: Tls | None, owner: Owner | None = None) -> Credentials:
        """From the options of a client."""
        for key in (api_key, owner.key if owner else None):
            if key is not None and not (key and key.isascii() and key.isprintable()):
                raise UsageError("an API key is printable ASCII text, and not empty")
        if tls is not None and (tls.client_certificate is None) != (tls.client_key is None):
            raise UsageError("client_certificate and client_key belong together: give both")
        made = cls(api_key, tls, owner)
        made.pems()
        return made

    @property
    def shows_key_alone(self) -> bool:
        """Whether nodes know the client by its key: it has no certificate to show them."""
        return self.api_key is not None and self.tls is not None and not self.tls.client_certificate

    def for_others(self) -> Credentials:
        """For nodes that are not the owner's."""
        return Credentials(self.api_key, self.tls)

    def for_node(self, node_id: str) -> Credentials:
        """For one node: where any member of a fleet would do, this one must show that it is it.

        The same for an empty id, and where the client awaits names of its own choice.
        """
        if not node_id or self.tls is None or self.tls.server_name != MEMBER_NAME:
            return self
        return replace(self, tls=replace(self.tls, server_name=name_of_node(node_id)))

    def pems(self) -> Pems | None:
        """What a new connection is encrypted with; None for plain text. Raises UsageError."""
        tls = self.tls
        if tls is None:
            return None
        certificate = _content(tls.client_certificate)
        # A file that has both is read once: read twice, and renewed in between, it would give the
        # key of another certificate.
        is_one = tls.client_key == tls.client_certificate and not callable(tls.client_key)
        key = certificate if is_one else _content(tls.client_key)
        return Pems(_content(tls.ca_certificates), certificate, key)

    def channel_options(self) -> tuple[tuple[str, str], ...]:
        """Options of gRPC that say whose certificate is awaited."""
        own = self.owner.server_name if self.owner else None
        name = own or (self.tls.server_name if self.tls else None)
        return (("grpc.ssl_target_name_override", name),) if name else ()

    def metadata(self, address: str) -> tuple[tuple[str, str], ...]:
        """What each call to `address` (host:port) carries.

        Raises KeyExposed when a key would leave this machine in plain text.
        """
        key = self.owner.key if self.owner else self.api_key
        if key is None:
            return ()
        host = address.rpartition(":")[0].strip("[]")
        if self.tls is None and not _is_loopback(host):
            raise KeyExposed(
                f"the API key would travel to {host} in plain text: give tls=Tls(...)",
                metadata={"address": address},
            )
        return (("authorization", f"Bearer {key}"),)


def _content(source: PemSource | None) -> bytes | None:
    if source is None or isinstance(source, bytes):
        return source
    if callable(source):
        return source()
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
