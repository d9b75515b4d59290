"""Mutual TLS 1.3 between members: for gRPC, and for the sockets that carry tensors.

Both ends show their certificates, and both must descend from a keeper of the fleet. Who is put
out is refused by `Trust.member_of`, which is asked at each call: handshakes know of no
deny-list, and connections that are open go on when an authority is dropped.
"""

from __future__ import annotations

import ssl
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

    def configuration() -> grpc.ServerCertificateConfiguration:
        own = trust.member
        chain = [(own.key_pem, own.certificate_pem)]
        return grpc.ssl_server_certificate_configuration(chain, callers_pem(trust))

    # Asked at each handshake, from threads of gRPC: what it reads is replaced, never changed.
    return grpc.dynamic_ssl_server_credentials(
        configuration(), configuration, require_client_authentication=True
    )


def applications_credentials(trust: Trust) -> grpc.ServerCredentials:
    """For a port that shows this node's certificate, and asks callers for none: they have keys."""

    def configuration() -> grpc.ServerCertificateConfiguration:
        own = trust.member
        return grpc.ssl_server_certificate_configuration([(own.key_pem, own.certificate_pem)])

    return grpc.dynamic_ssl_server_credentials(
        configuration(), configuration, require_client_authentication=False
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
            context.load_cert_chain(trust.files.member_file)
            shown = trust.member.certificate

    show()
    trust.on_change.append(show)
    return context


def _context(trust: Trust, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Who it is, `member_behind` asks: an address says nothing of that.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(trust.files.member_file)
    is_server = protocol == ssl.PROTOCOL_TLS_SERVER
    known = callers_pem(trust) if is_server else authorities_pem(trust)
    context.load_verify_locations(cadata=known.decode("ascii"))
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
