"""API keys and TLS of a client."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import kakeya
from kakeya import AsyncClient, Client, Tls
from kakeya.credentials import Credentials
from tests.support import scripted_node as scripted
from tests.support.scripted_node import ScriptedNode


@dataclass
class Identity:
    """A certificate with its key, both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs certificates for this machine."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign("authority", self._key, None)
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def identity(self, name: str) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        return Identity(
            self._sign(name, key, self._certificate).public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )

    def _sign(
        self, name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Certificate | None
    ) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.subject if issuer else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), True)
        )
        if issuer is not None:
            addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(addresses), False)
        return builder.sign(self._key, hashes.SHA256())


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
async def guarded(authority: Authority) -> AsyncIterator[scripted.ScriptedNode]:
    """A node that takes encrypted calls of clients that show a certificate, and no others."""
    identity = authority.identity("node")
    node = scripted.ScriptedNode()
    await node.start(
        grpc.ssl_server_credentials(
            [(identity.key, identity.certificate)],
            root_certificates=authority.pem,
            require_client_auth=True,
        )
    )
    yield node
    await node.stop()


async def test_an_encrypted_client_shows_its_certificate_and_its_key(
    guarded: scripted.ScriptedNode, authority: Authority, tmp_path: Path
) -> None:
    identity = authority.identity("client")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "key.pem").write_bytes(identity.key)
    tls = Tls(tmp_path / "ca.pem", identity.certificate, str(tmp_path / "key.pem"))
    async with AsyncClient(guarded.address, tls=tls, api_key="sesame") as client:
        session = await client.create_session("tiny")
        await session.append([1])
        assert (await session.generate(3).collect()).done.history_length == 4
        assert await client.fleet.nodes()
    assert set(guarded.authorizations) == {"Bearer sesame"}
    assert len(guarded.authorizations) == 4


async def test_a_node_of_another_authority_is_not_trusted(
    guarded: scripted.ScriptedNode, authority: Authority
) -> None:
    identity = authority.identity("client")
    for tls in (
        Tls(Authority().pem, identity.certificate, identity.key),
        Tls(authority.pem),
        None,
    ):
        async with AsyncClient(guarded.address, tls=tls) as client:
            with pytest.raises(kakeya.NodeUnreachable):
                await client.fleet.node()
    assert not guarded.requests


def test_a_file_of_key_and_certificate_that_is_renewed_gives_a_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever moment it is replaced at: a key never comes with another one's certificate."""
    path = tmp_path / "member.pem"
    contents = iter(range(100))
    monkeypatch.setattr(Path, "read_bytes", lambda _: f"{path.name} {next(contents)}".encode())
    credentials = Credentials(tls=Tls(lambda: b"", path, path))
    first, second = credentials.pems(), credentials.pems()
    assert first is not None
    assert second is not None
    assert first.client_certificate == first.client_key
    # Each new connection reads it again.
    assert second.client_certificate != first.client_certificate


async def test_a_client_without_a_key_sends_none(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        await client.fleet.node()
    assert node.authorizations == [""]


@pytest.mark.parametrize("address", ["10.0.0.7:7700", "mini-2.local:7700", "[fe80::1]:7700"])
def test_a_key_does_not_leave_this_machine_in_plain_text(address: str) -> None:
    with pytest.raises(kakeya.KeyExposed, match="plain text") as caught:
        AsyncClient(address, api_key="sesame")
    assert caught.value.metadata["address"] == address
    assert "sesame" not in str(caught.value)
    with pytest.raises(kakeya.KeyExposed):
        Client(address, api_key="sesame")
    AsyncClient(address, api_key="sesame", tls=Tls())


@pytest.mark.parametrize("address", ["127.0.0.1:7700", "localhost:7700", "[::1]:7700"])
def test_this_machine_itself_is_no_wire(address: str) -> None:
    AsyncClient(address, api_key="sesame")


async def test_a_gateway_does_not_lure_the_key_away(node: ScriptedNode) -> None:
    node.refuse(
        "CreateSession",
        grpc.StatusCode.FAILED_PRECONDITION,
        reason="MODEL_SERVED_ELSEWHERE",
        metadata={"address": "10.0.0.7:7700"},
    )
    async with AsyncClient(node.address, api_key="sesame") as client:
        with pytest.raises(kakeya.KeyExposed):
            await client.create_session("tiny")


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": ""},
        {"api_key": "two\nlines"},
        {"api_key": "clé"},
        {"tls": Tls("/nowhere/ca.pem")},
        {"tls": Tls(client_certificate=b"x")},
        {"tls": Tls(client_key=b"x")},
    ],
)
def test_credentials_that_cannot_work_are_refused_here(options: dict[str, Any]) -> None:
    with pytest.raises(kakeya.UsageError):
        AsyncClient("127.0.0.1:7700", **options)


def test_a_key_is_not_shown() -> None:
    from kakeya.credentials import Credentials  # noqa: PLC0415

    assert "sesame" not in repr(Credentials.of("sesame", None))
