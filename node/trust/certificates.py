"""X.509 certificates (RFC 5280) of a fleet: authorities, and the members that they let in.

All keys are ECDSA P-256: gRPC's TLS takes no Ed25519 certificates. A member's certificate
names its node id, which is the digest of another key, as a DNS name, since that is all that gRPC
compares; it can sign nothing but handshakes, so no member makes certificates for others.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kakeya_fleet.fleet.trust.host_names import HostNames, certifiable
from kakeya_fleet.node.errors import BadCertificate

MEMBER_NAME = "member.kakeya"
"""A DNS name in every member's certificate: whoever is dialled by address alone proves that."""
_NODE_SUFFIX = ".node.kakeya"
_OWN_SUFFIX = ".kakeya"
NO_HOSTS = HostNames()
MEMBER_LIFE = timedelta(days=7)
AUTHORITY_LIFE = timedelta(days=3653)
SKEW = timedelta(hours=1)
"""How far behind the issuer's a member's clock may be."""


def new_key() -> ec.EllipticCurvePrivateKey:
    """A private key on P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def name_of_node(node_id: str) -> str:
    """The DNS name of a node: 256 bits in base32 are 52 characters, a label has 63 at most."""
    label = base64.b32encode(bytes.fromhex(node_id)).decode("ascii").rstrip("=").lower()
    return label + _NODE_SUFFIX


def node_of_name(name: str) -> str | None:
    """The node id that `name_of_node` made the name of; None for other names."""
    label = name.lower().removesuffix(_NODE_SUFFIX)
    if label == name.lower() or len(label) != 52:
        return None
    try:
        return base64.b32decode(label.upper() + "====").hex()
    except ValueError:
        return None


def authority_id(certificate: bytes) -> str:
    """SHA-256 of the public key (SubjectPublicKeyInfo) of a certificate in DER, hexadecimal.

    Raises `BadCertificate`.
    """
    key = load_certificate(certificate).public_key()
    spki = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(spki).hexdigest()


def load_certificate(certificate: bytes) -> x509.Certificate:
    """A certificate in DER. Raises `BadCertificate`."""
    try:
        return x509.load_der_x509_certificate(certificate)
    except ValueError as error:
        raise _bad("the bytes are no certificate") from error


def new_authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> bytes:
    """The self-signed certificate of an authority, DER. It lets members in, no authorities."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Kakeya Fleet authority")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.DER)


def new_request(
    key: ec.EllipticCurvePrivateKey, node_id: str, hosts: HostNames = NO_HOSTS
) -> bytes:
    """What a node asks a keeper with: PKCS #10 (RFC 2986), DER; it is called at `hosts`, too."""
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .add_extension(_names(node_id, hosts), critical=True)
        .sign(key, hashes.SHA256())
    )
    return request.public_bytes(serialization.Encoding.DER)


def issue(
    key: ec.EllipticCurvePrivateKey,
    authority: bytes,
    request: bytes,
    node_id: str,
    now: datetime,
    caller_host: str = "",
) -> bytes:
    """The certificate of a member, DER: the request's key with the names of `node_id`.

    And those of the hosts where it is called that are `certifiable` for one who asks from the
    address `caller_host`: of the request's own names of nodes none counts.

    Raises `BadCertificate` for what is no request, and one that its key has not signed.
    """
    issuer = load_certificate(authority)
    try:
        asked = x509.load_der_x509_csr(request)
        # Read when it is asked for: a point that is not on its curve is found here.
        public_key = asked.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _bad("the bytes are no request for a certificate") from error
    is_p256 = isinstance(public_key, ec.EllipticCurvePublicKey) and isinstance(
        public_key.curve, ec.SECP256R1
    )
    if not is_p256 or not asked.is_signature_valid:
        raise _bad("the request is not signed by a P-256 key of its own")
    usages = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + MEMBER_LIFE)
        .add_extension(_names(node_id, certifiable(_hosts(asked), caller_host)), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(_issuer_key(issuer), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.DER)


def member_of(certificate: bytes, authorities: Sequence[bytes], now: datetime) -> str:
    """The node that the certificate, DER, makes a member by one of the authorities.

    Raises `BadCertificate`, which says why not.
    """
    leaf = load_certificate(certificate)
    if now < leaf.not_valid_before_utc:
        # Whoever issued it allowed for a clock that is behind by `SKEW`.
        behind = leaf.not_valid_before_utc + SKEW - now
        raise _bad(
            f"the certificate is good from {leaf.not_valid_before_utc:%F %T} UTC on, and by this "
            f"machine's clock it is {now:%F %T}: that clock is {_duration(behind)} behind the "
            "issuer's, or more",
            "clock",
        )
    if now > leaf.not_valid_after_utc:
        raise _bad(f"the certificate ended at {leaf.not_valid_after_utc:%F %T} UTC", "expired")
    store = [load_certificate(each) for each in authorities]
    if not store:
        raise _bad("no keeper of this fleet is left")
    verification = x509.verification
    verifier = (
        verification.PolicyBuilder().store(verification.Store(store)).time(now).max_chain_depth(0)
    )
    try:
        verified = verifier.build_client_verifier().verify(leaf, [])
    except verification.VerificationError as error:
        raise _bad("no keeper of this fleet has signed the certificate") from error
    names = [each.value for each in verified.subjects or () if isinstance(each, x509.DNSName)]
    return _only_node(names)


def named_node(certificate: bytes) -> str:
    """The node that a certificate, DER, names, unverified. Raises `BadCertificate`."""
    try:
        extensions = load_certificate(certificate).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound) as error:
        raise _bad("the certificate has no names") from error
    return _only_node(names.get_values_for_type(x509.DNSName))


def _only_node(names: Sequence[str]) -> str:
    found = [node for name in names if (node := node_of_name(name)) is not None]
    if len(found) != 1:
        raise _bad("the certificate does not name one node")
    return found[0]


def signed_by(certificate: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the key of a certificate, DER, signed the message (ECDSA, SHA-256)."""
    try:
        key = load_certificate(certificate).public_key()
    except BadCertificate:
        return False
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    try:
        key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def hosts_of(certificate: bytes) -> HostNames:
    """Where a certificate, DER, says that its node is called. Raises `BadCertificate`."""
    return _hosts(load_certificate(certificate))


def _hosts(holder: x509.Certificate | x509.CertificateSigningRequest) -> HostNames:
    try:
        names = holder.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return NO_HOSTS
    told = (each for each in names.get_values_for_type(x509.DNSName) if not _is_own(each))
    return HostNames.of(told, map(str, names.get_values_for_type(x509.IPAddress)))


def _is_own(name: str) -> bool:
    """Whether a name means a member or a node, and no host."""
    return name.lower().endswith(_OWN_SUFFIX)


def _names(node_id: str, hosts: HostNames) -> x509.SubjectAlternativeName:
    names = (name_of_node(node_id), MEMBER_NAME, *sorted(hosts.names))
    addresses = sorted(hosts.addresses, key=lambda each: (each.version, int(each)))
    return x509.SubjectAlternativeName(
        [*map(x509.DNSName, names), *(x509.IPAddress(each) for each in addresses)]
    )


def _issuer_key(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier.value)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _duration(time: timedelta) -> str:
    """For people: minutes, and beyond two hours hours."""
    minutes = time.total_seconds() / 60
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


def _bad(cause: str, fault: str = "") -> BadCertificate:
    mends = {
        "clock": "set this machine's clock, and the other's",
        "expired": "start a keeper, which renews it, or join again with a new code",
    }
    mend = mends.get(fault, "join the fleet with a code of `fleet invite`")
    return BadCertificate(cause, mend, fault=fault)
