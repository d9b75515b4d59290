"""Mutual TLS 1.3 between members: for gRPC, and for the sockets that carry tensors.

Both ends show their certificates, and both must descend from a keeper of the fleet. Who is put
out is refused by `Trust.member_of`, which is asked at each call: handshakes know of no
deny-list, and connections that are open go on when an authority is dropped.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Mapping

import grpc

from kakeya import Tls
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.trust.certificates import MEMBER_NAME, load_certificate, name_of_node
from kakeya_fleet.node.trust.membership_files import pem_of
from kakeya_fleet.node.trust.trust import Trust


def authorities_pem(trust: Trust) -> bytes:
    """The certificates that members' descend from, PEM."""
    return b"".join(map(pem_of, trust.ledger.authorities))


def callers_pem(trust: Trust) -> bytes:
    """The same for servers: also of keepers that were put out, whose members are to renew.

    Which of their certificates are upheld `Trust.member_of` knows, at each call. Clients cannot
    ask, so that they take none of these.
    """
    return authorities_pem(trust) + b"".join(map(pem_of, trust.ledger.former))


def server_credentials(trust: Trust) -> grpc.ServerCredentials:
    """For a port that members alone can call. Renewed certificates count from the next one on."""
    return _credentials(trust, asks_callers=True)


class RenewedCertificates:
    """What gRPC asks at each handshake, from threads of its own: whether certificates are others.

    gRPC takes what it is told without a lock: a handshake that begins while another one's answer
    replaces the certificates ends the process (`sync.cc`, "prior > 0"), and a few callers at once
    are enough. So it is told something when it is another, and None otherwise.
    """

    def __init__(self, trust: Trust, *, asks_callers: bool = True) -> None:
        """Callers of a port that `asks_callers` for certificates are members."""
        self._trust = trust
        self._asks_callers = asks_callers
        self._lock = threading.Lock()
        self._told = self._of_now()
        self.first = _configuration(*self._told)

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        """Another one than the last that was told; None if it is the same."""
        with self._lock:
            now = self._of_now()
            if now == self._told:
                return None
            self._told = now
        return _configuration(*now)

    def _of_now(self) -> tuple[bytes, bytes, bytes | None]:
        # What is read is replaced, never changed.
        own = self._trust.member
        callers = callers_pem(self._trust) if self._asks_callers else None
        return own.key_pem, own.certificate_pem, callers


def _configuration(
    key: bytes, chain: bytes, callers: bytes | None
) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(key, chain)], callers)


def applications_credentials(trust: Trust) -> grpc.ServerCredentials:
    """For a port that shows this node's certificate, and asks callers for none: they have keys."""
    return _credentials(trust, asks_callers=False)


def _credentials(trust: Trust, *, asks_callers: bool) -> grpc.ServerCredentials:
    renewed = RenewedCertificates(trust, asks_callers=asks_callers)
    return grpc.dynamic_ssl_server_credentials(
        renewed.first,
        renewed,  # type: ignore[arg-type]  # None is "no other ones", as gRPC documents it
        require_client_authentication=asks_callers,
    )


def is_encrypted(auth_context: Mapping[str, object]) -> bool:
    """Whether a call of gRPC came by TLS, with or without the caller's certificate."""
    return auth_context.get("transport_security_type") in ([b"ssl"], (b"ssl",))


def channel_credentials(trust: Trust) -> grpc.ChannelCredentials:
    """For one channel, with this node's certificate of now: a renewed one needs a new channel."""
    own = trust.member
    return grpc.ssl_channel_credentials(authorities_pem(trust), own.key_pem, own.certificate_pem)


def client_tls(trust: Trust) -> Tls:
    """For clients of the Python SDK that act as this node, with the certificates of each moment."""
    return Tls(
        ca_certificates=lambda: authorities_pem(trust),
        client_certificate=lambda: trust.member.certificate_pem,
        client_key=lambda: trust.member.key_pem,
        server_name=MEMBER_NAME,
    )


def channel_options(node_id: str) -> tuple[tuple[str, str], ...]:
    """Has the other end prove that it is that node; any member when it is empty."""
    name = name_of_node(node_id) if node_id else MEMBER_NAME
    return (("grpc.ssl_target_name_override", name),)


def server_context(trust: Trust) -> ssl.SSLContext:
    """For sockets that members connect to, with the certificates of now."""
    return _context(trust, ssl.PROTOCOL_TLS_SERVER)


def client_context(trust: Trust) -> ssl.SSLContext:
    """For sockets that connect to a member, with the certificates of now."""
    return _context(trust, ssl.PROTOCOL_TLS_CLIENT)


def kept_https_context(trust: Trust) -> ssl.SSLContext:
    """For HTTPS: it asks clients for no certificate, and shows this node's of each moment.

    TLS 1.2 is taken too: what people call it with is not of our choosing.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    shown = b""

    def show() -> None:
        nonlocal shown
        if trust.member.certificate != shown:
            _show_member(context, trust)
            shown = trust.member.certificate

    show()
    trust.on_change.append(show)
    return context


def _show_member(context: ssl.SSLContext, trust: Trust) -> None:
    """Has a context show this node's certificate. Raises `OSError`, as what reads it does.

    Certificate and key are read one after the other: where the file is replaced in between, as
    when it is renewed, they do not fit, and both are read again.
    """
    file = trust.files.member_file
    while True:
        before = file.stat()
        try:
            context.load_cert_chain(file)
        except ssl.SSLError:
            now = file.stat()
            if (now.st_ino, now.st_mtime_ns) == (before.st_ino, before.st_mtime_ns):
                raise
        else:
            return


def _context(trust: Trust, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Who it is, `member_behind` asks: an address says nothing of that.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    _show_member(context, trust)
    is_server = protocol == ssl.PROTOCOL_TLS_SERVER
    known = callers_pem(trust) if is_server else authorities_pem(trust)
    context.load_verify_locations(cadata=known.decode("ascii"))
    return context


def application_context(authorities: str, protocol: str) -> ssl.SSLContext:
    """As clients have it that are no members: they trust `authorities`, PEM, and show nothing.

    `protocol` is the one of ALPN that they speak.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authorities)
    context.set_alpn_protocols([protocol])
    return context


async def shown_certificate(address: tuple[str, int], trust: Trust) -> bytes | None:
    """The certificate, DER, that a server at (host, port) shows, which proves nothing by itself.

    None for one that shows none. Raises `OSError` when nothing answers there.
    """
    context = _unproven_context(trust)
    try:
        _, writer = await asyncio.open_connection(*address, ssl=context)
    except ssl.SSLError:
        return None
    connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
    certificate = connection.getpeercert(binary_form=True)
    # Nothing was said that a farewell would be for.
    writer.transport.abort()
    return certificate


def shown_credentials(trust: Trust, certificate: bytes) -> grpc.ChannelCredentials:
    """For a channel to whoever has the key of this certificate, DER: nobody says who that is."""
    own = trust.member
    return grpc.ssl_channel_credentials(pem_of(certificate), own.key_pem, own.certificate_pem)


def _unproven_context(trust: Trust) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _show_member(context, trust)
    context.set_alpn_protocols(["h2"])
    return context


def member_behind(connection: ssl.SSLSocket | ssl.SSLObject, trust: Trust) -> str:
    """The member at the other end, after the handshake. Raises `BadCertificate`."""
    certificate = connection.getpeercert(binary_form=True)
    if certificate is None:
        raise BadCertificate("the other end shows no certificate", "join it with a code")
    return trust.member_of(certificate)


def member_calling(auth_context: Mapping[str, object], trust: Trust) -> str | None:
    """The member that makes a call of gRPC; None without encryption. Raises `BadCertificate`."""
    found = auth_context.get("x509_pem_cert")
    if not isinstance(found, (list, tuple)) or not found:
        return None
    (pem,) = found
    if not isinstance(pem, bytes):
        return None
    try:
        der = ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))
    except ValueError as error:
        raise BadCertificate("the bytes are no certificate", "join again with a code") from error
    load_certificate(der)
    return trust.member_of(der)
