"""What a member of a fleet keeps of it, in its state directory's `trust/`.

fleet            name and id of the fleet; it is there last, so a node with it has all others
statements       what keepers said, see `fleet.trust.ledger`
member.pem       private key and certificate of this node's TLS
authority.pem    private key and certificate of this keeper's authority; keepers alone
owner.key        whoever can read it owns this node

Files have mode 0600, and are replaced at once. Those that others can read are refused.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kakeya_fleet.node.config.state_directory import (
    OTHERS,
    read_checked,
    unwritable,
    write_checked,
    write_durable,
)
from kakeya_fleet.node.errors import StateExposed, TrustCorrupt

FOLDER = "trust"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key, and its certificate in DER."""

    key: ec.EllipticCurvePrivateKey
    certificate: bytes

    @property
    def key_pem(self) -> bytes:
        """PKCS #8, PEM, not encrypted."""
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    @property
    def certificate_pem(self) -> bytes:
        """PEM."""
        return pem_of(self.certificate)


def pem_of(certificate: bytes) -> bytes:
    """A certificate, DER, as PEM."""
    return x509.load_der_x509_certificate(certificate).public_bytes(serialization.Encoding.PEM)


@dataclass(frozen=True, slots=True)
class FleetName:
    """Which fleet: its name for people, and its first keeper's authority id."""

    name: str
    fleet_id: str


class MembershipFiles:
    """The folder `trust/` below a state directory. Any thread may use it."""

    def __init__(self, state: Path) -> None:
        self.path = state / FOLDER

    def fleet(self) -> FleetName | None:
        """The fleet that was joined; None for a node of none. Raises `TrustCorrupt`."""
        content = self._read("fleet")
        if content is None:
            return None
        try:
            facts = json.loads(content)
            return FleetName(str(facts["name"]), str(facts["fleet_id"]))
        except (ValueError, KeyError, TypeError) as error:
            raise self._corrupt("fleet") from error

    def write_fleet(self, fleet: FleetName) -> None:
        """Written last: from then on the node is a member. Raises `StateUnwritable`."""
        facts = {"name": fleet.name, "fleet_id": fleet.fleet_id}
        write_checked(self._file("fleet"), json.dumps(facts).encode())

    def statements(self) -> bytes:
        """What `write_statements` wrote. Raises `TrustCorrupt`."""
        content = self._read("statements")
        if content is None:
            raise self._corrupt("statements")
        return content

    def write_statements(self, content: bytes) -> None:
        """Raises `StateUnwritable`."""
        write_checked(self._file("statements"), content)

    @property
    def member_file(self) -> Path:
        """Key and certificate in PEM, for libraries that read files alone."""
        return self.path / "member.pem"

    def member(self) -> KeyPair:
        """The key and the certificate of this node. Raises `TrustCorrupt`, `StateExposed`."""
        pair = self._pair("member.pem")
        if pair is None:
            raise self._corrupt("member.pem")
        return pair

    def write_member(self, pair: KeyPair) -> None:
        """Raises `StateUnwritable`."""
        write_durable(self._file("member.pem"), pair.key_pem + pair.certificate_pem)

    def authority(self) -> KeyPair | None:
        """The authority of this keeper; None for others. Raises `TrustCorrupt`, `StateExposed`."""
        return self._pair("authority.pem")

    def write_authority(self, pair: KeyPair) -> None:
        """Raises `StateUnwritable`."""
        write_durable(self._file("authority.pem"), pair.key_pem + pair.certificate_pem)

    def owner_key(self) -> str:
        """What shows that a caller may read this node's files; made when there is none.

        Raises `StateExposed`, `StateUnwritable`.
        """
        path = self._file("owner.key")
        try:
            self._require_private(path)
            return path.read_text("ascii").strip()
        except FileNotFoundError:
            key = secrets.token_urlsafe(32)
            write_durable(path, f"{key}\n".encode("ascii"))
            return key

    def _file(self, name: str) -> Path:
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from error
        return self.path / name

    def _read(self, name: str) -> bytes | None:
        path = self.path / name
        try:
            return read_checked(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._corrupt(name) from error

    def _pair(self, name: str) -> KeyPair | None:
        path = self.path / name
        try:
            self._require_private(path)
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._corrupt(name) from error
        try:
            key = serialization.load_pem_private_key(content, password=None)
            certificate = x509.load_pem_x509_certificate(content)
        except ValueError as error:
            raise self._corrupt(name) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise self._corrupt(name)
        if certificate.public_key() != key.public_key():
            raise self._corrupt(name)
        return KeyPair(key, certificate.public_bytes(serialization.Encoding.DER))

    def _require_private(self, path: Path) -> None:
        if path.stat().st_mode & OTHERS:
            raise StateExposed(
                f"others can read the private key {path}", f"chmod 600 {path}", path=str(path)
            )

    def _corrupt(self, name: str) -> TrustCorrupt:
        path = self.path / name
        return TrustCorrupt(
            f"what this node keeps of its fleet in {path} cannot be read",
            f"put a backup back, or rm -r {self.path} and join again with a code of `fleet invite`",
            path=str(path),
        )


def fleet_name_of(state: Path) -> str | None:
    """The fleet whose member a state directory's node is; None without one.

    Raises `TrustCorrupt`.
    """
    fleet = MembershipFiles(state).fleet()
    return fleet.name if fleet is not None else None
