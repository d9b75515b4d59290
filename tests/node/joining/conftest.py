"""Two nodes, a code, and a certificate request with its key.

request_of      a certificate request of a node, as PKCS #10 in DER
authority       issues X.509 certificates for such requests
make_house      a node that invites, on loopback, and a machine that wants in
"""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kakeya_fleet.node.joining.application import JoinGrantContent, VerifiedApplication
from kakeya_fleet.node.joining.join_client import join
from kakeya_fleet.node.joining.join_issuer import JoinIssuer
from kakeya_fleet.node.membership.identity import Identity
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.watch.event_log import EventKind, EventLog
from tests.node.conftest import MakeIdentity
from tests.support.allowances import allowances_of

RequestOf = Callable[[str], bytes]


@pytest.fixture
def request_of() -> RequestOf:
    def make(node_id: str) -> bytes:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node_id[:32])])
        request = x509.CertificateSigningRequestBuilder().subject_name(name)
        key = ec.generate_private_key(ec.SECP256R1())
        return request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)

    return make


@dataclass
class Authority:
    """A fleet's, in memory; `granted` has whom it gave certificates."""

    key: ec.EllipticCurvePrivateKey
    granted: list[VerifiedApplication]

    def grant(self, application: VerifiedApplication) -> JoinGrantContent:
        self.granted.append(application)
        request = x509.load_der_x509_csr(application.certificate_request)
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "home")]))
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + datetime.timedelta(days=7))
            .sign(self.key, hashes.SHA256())
        )
        return JoinGrantContent(
            certificate=certificate.public_bytes(serialization.Encoding.DER),
            statements=(b"one", b"two"),
            fleet_name="home",
            fleet_id="f" * 64,
            peers=("127.0.0.1:7100",),
        )

    def has_issued(self, certificate: bytes) -> bool:
        read = x509.load_der_x509_certificate(certificate)
        self.key.public_key().verify(
            read.signature, read.tbs_certificate_bytes, ec.ECDSA(hashes.SHA256())
        )
        return True


@pytest.fixture
def authority() -> Authority:
    return Authority(ec.generate_private_key(ec.SECP256R1()), [])


LOOPBACK = ("127.0.0.1",)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class House:
    """A node that invites, and a machine that wants in."""

    issuer: JoinIssuer
    events: EventLog
    clock: Clock
    authority: Authority
    joiner: Identity
    request: bytes
    issuer_id: str

    async def join(self, code: str, **options: object) -> JoinGrantContent:
        return await join(code, self.joiner, "mini-2", self.request, **options)  # type: ignore[arg-type]

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.events.latest]


Refuse = Callable[[VerifiedApplication], JoinGrantContent]
MakeHouse = Callable[..., House]


@pytest.fixture
async def make_house(
    make_identity: MakeIdentity, metrics: NodeMetrics, authority: Authority, request_of: RequestOf
) -> AsyncIterator[MakeHouse]:
    made: list[JoinIssuer] = []

    def make(grant: Refuse | None = None, **options: object) -> House:
        clock, events, node_id = Clock(), EventLog(), make_identity().node_id
        joiner = make_identity()
        settings = {
            "clock": clock,
            "hosts": LOOPBACK,
            "mdns": False,
            "allowances": allowances_of(),
            **options,
        }
        issuer = JoinIssuer(
            node_id=node_id,
            grant=grant or authority.grant,
            events=events,
            metrics=metrics,
            **settings,  # type: ignore[arg-type]
        )
        made.append(issuer)
        request = request_of(joiner.node_id)
        return House(issuer, events, clock, authority, joiner, request, node_id)

    yield make
    for each in made:
        await each.close()
