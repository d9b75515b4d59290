"""One node's membership of a fleet with an authority: who is in it, and who this node is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.errors import StatementRejected
from kakeya_fleet.fleet.trust.host_names import HostNames
from kakeya_fleet.fleet.trust.keys import ApplicationKey
from kakeya_fleet.fleet.trust.ledger import Ledger
from kakeya_fleet.fleet.trust.statements import (
    AllowedRoles,
    Keeper,
    KeyRevocation,
    Revocation,
    Says,
    Statement,
    statement_message,
)
from kakeya_fleet.node.errors import BadCertificate, LastKeeper, NotAKeeper, TrustCorrupt
from kakeya_fleet.node.trust.certificates import (
    NO_HOSTS,
    authority_id,
    issue,
    load_certificate,
    member_of,
    new_authority,
    new_key,
    new_request,
    signed_by,
)
from kakeya_fleet.node.trust.membership_files import FleetName, KeyPair, MembershipFiles
from kakeya_fleet.node.trust.statement_wire import body_of, pack, unpack

UnixClock = Callable[[], float]


class Trust:
    """What this node knows of its fleet's authority, kept in files before it counts.

    Used by one thread at a time. `on_change` is called after every change of who is trusted,
    and of this node's own certificate.
    """

    def __init__(
        self, files: MembershipFiles, fleet: FleetName, node_id: str, unix_clock: UnixClock
    ) -> None:
        """Opens what is kept. Raises `TrustCorrupt`, `StateExposed`."""
        self.files = files
        self.fleet = fleet
        self.node_id = node_id
        self._clock = unix_clock
        try:
            statements = unpack(files.statements(), fleet.fleet_id)
            self._ledger = Ledger(fleet.fleet_id, signed_by, statements)
        except StatementRejected as error:
            raise TrustCorrupt(
                f"the statements in {files.path} cannot be read ({error})",
                f"put a backup back, or rm -r {files.path} and join again with a code",
                path=str(files.path),
            ) from error
        self._member = files.member()
        self._authority = files.authority()
        self.on_change: list[Callable[[], None]] = []

    @classmethod
    def open(cls, files: MembershipFiles, node_id: str, unix_clock: UnixClock) -> Trust | None:
        """That of a state directory; None for a node of a fleet without an authority."""
        fleet = files.fleet()
        return cls(files, fleet, node_id, unix_clock) if fleet is not None else None

    @property
    def ledger(self) -> Ledger:
        """Who is trusted. Not to be merged into but by `merge`."""
        return self._ledger

    @property
    def member(self) -> KeyPair:
        """The key and the certificate of this node itself."""
        return self._member

    @property
    def is_keeper(self) -> bool:
        """Whether this node can let others in."""
        own = self._authority
        return own is not None and authority_id(own.certificate) in self._ledger.keepers

    @property
    def ends_unix(self) -> float:
        """When this node's certificate ends, in seconds since 1970."""
        return load_certificate(self._member.certificate).not_valid_after_utc.timestamp()

    @property
    def began_unix(self) -> float:
        """When it began to be good."""
        return load_certificate(self._member.certificate).not_valid_before_utc.timestamp()

    def now_unix(self) -> float:
        """The clock by which certificates begin and end, in seconds since 1970."""
        return self._clock()

    def is_out(self, node_id: str) -> bool:
        """Whether the node was put out."""
        return node_id in self._ledger.revoked

    def member_of(self, certificate: bytes) -> str:
        """The member that a certificate, DER, stands for; raises `BadCertificate`."""
        node_id = member_of(certificate, self._authorities_of(certificate), self._now())
        if self.is_out(node_id):
            raise BadCertificate(
                f"node {node_id[:12]} was put out of the fleet {self.fleet.name}",
                "join as a new node, with a code of `fleet invite`",
                fault="revoked",
            )
        return node_id

    def _authorities_of(self, certificate: bytes) -> list[bytes]:
        """Who may have signed it: keepers, and those that were put out if it is upheld."""
        digest = hashlib.sha256(certificate).digest()
        former = [each for each, upheld in self._ledger.former.items() if digest in upheld]
        return [*self._ledger.authorities, *former]

    @property
    def is_kept(self) -> bool:
        """Whether this node's certificate is of one who is a keeper still."""
        try:
            member_of(self._member.certificate, self._ledger.authorities, self._now())
        except BadCertificate:
            return False
        return True

    def merge(self, statements: Iterable[Statement]) -> bool:
        """Takes what others know; whether it was new. Raises `StatementRejected`."""
        if not self._ledger.merge(statements):
            return False
        self.files.write_statements(pack(self._ledger.statements))
        self._changed()
        return True

    def request(self, hosts: HostNames = NO_HOSTS) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
        """A new key, and what a keeper is asked with for its certificate."""
        key = new_key()
        return key, new_request(key, self.node_id, hosts)

    def renewed(self, key: ec.EllipticCurvePrivateKey, certificate: bytes) -> None:
        """Goes on with a new certificate. Raises `BadCertificate` for one that is not its own."""
        if self.member_of(certificate) != self.node_id:
            raise BadCertificate("the new certificate is another node's", "ask another keeper")
        pair = KeyPair(key, certificate)
        self.files.write_member(pair)
        self._member = pair
        self._changed()

    def issue(self, request: bytes, node_id: str, caller_host: str = "") -> bytes:
        """A certificate, DER, for a node that asks from an IP address, empty for one unknown.

        Raises `NotAKeeper`, `BadCertificate`.
        """
        own = self._keeper()
        if self.is_out(node_id):
            raise BadCertificate(
                f"node {node_id[:12]} was put out of the fleet {self.fleet.name}",
                "rm its identity.key and join as a new node",
                fault="revoked",
            )
        return issue(own.key, own.certificate, request, node_id, self._now(), caller_host)

    def make_authority(self) -> bytes:
        """The certificate, DER, of this node's authority, which is made when there is none."""
        if self._authority is None:
            key = new_key()
            pair = KeyPair(key, new_authority(key, self._now()))
            self.files.write_authority(pair)
            self._authority = pair
        return self._authority.certificate

    def name_keeper(self, node_id: str, certificate: bytes) -> str:
        """Says that a node is a keeper with this authority, whose id it returns.

        Raises `NotAKeeper`, `BadCertificate`, `StatementRejected`.
        """
        authority = authority_id(certificate)
        self._say(Keeper(node_id, authority, certificate))
        return authority

    def revoke(self, node_id: str, certificates: Iterable[bytes] = ()) -> None:
        """Puts a node out; `certificates`, DER, are those of members, which stay good.

        Raises `NotAKeeper`, and `LastKeeper` for this node itself."""
        own = self._keeper()
        others = {
            authority
            for authority, keeper in self._ledger.keepers.items()
            if keeper.node_id != node_id
        }
        if authority_id(own.certificate) not in others:
            raise LastKeeper(
                "a keeper does not put itself out", "run it on another keeper, or `fleet leave`"
            )
        digests = [hashlib.sha256(each).digest() for each in certificates]
        upheld = frozenset([*(each.digest for each in self._ledger.judged.holding), *digests])
        was_keeper = len(others) < len(self._ledger.keepers)
        self._say(Revocation(node_id, upheld if was_keeper else frozenset()))

    def allow_roles(self, node_id: str, roles: frozenset[Role] | None) -> None:
        """Says which roles a node may serve for others, None for all.

        Raises `NotAKeeper`, `StatementRejected`.
        """
        self._keeper()
        before = self._ledger.judged.allowances.get(node_id)
        if before is not None and before.roles == roles and len(before.said_by) == 1:
            return
        replaced = before.said_by if before is not None else frozenset()
        self._say(AllowedRoles(node_id, roles, replaced))

    def say_key(self, key: ApplicationKey | KeyRevocation) -> None:
        """Says that a key is in force, or no more. Raises `NotAKeeper`, `StatementRejected`."""
        self._say(key)

    def _say(self, says: Says) -> None:
        own = self._keeper()
        self.merge([signed_statement(own, self.fleet.fleet_id, says, self._clock())])

    def _keeper(self) -> KeyPair:
        own = self._authority
        if own is None or not self.is_keeper:
            raise NotAKeeper(
                f"this node is no keeper of the fleet {self.fleet.name}", "ask on a keeper"
            )
        return own

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _changed(self) -> None:
        # Who hears of it may stop listening meanwhile, in another thread.
        for tell in tuple(self.on_change):
            tell()


def signed_statement(own: KeyPair, fleet_id: str, says: Says, now_unix: float) -> Statement:
    """What an authority says, signed."""
    body = body_of(fleet_id, says, now_unix)
    signature = own.key.sign(statement_message(body), ec.ECDSA(hashes.SHA256()))
    return Statement(says, body, authority_id(own.certificate), signature)


def found_fleet(
    files: MembershipFiles, fleet_name: str, node_id: str, unix_clock: UnixClock
) -> Trust:
    """Makes a fleet, with this node as its first keeper. Raises `StateUnwritable`."""
    now_unix = unix_clock()
    now = datetime.fromtimestamp(now_unix, UTC)
    key = new_key()
    own = KeyPair(key, new_authority(key, now))
    fleet = FleetName(fleet_name, authority_id(own.certificate))
    first = signed_statement(
        own, fleet.fleet_id, Keeper(node_id, fleet.fleet_id, own.certificate), now_unix
    )
    files.write_authority(own)
    return enter_fleet(
        files,
        fleet,
        (first,),
        _first_member(own, node_id, now),
        node_id,
        unix_clock,
    )


def _first_member(own: KeyPair, node_id: str, now: datetime) -> KeyPair:
    key = new_key()
    return KeyPair(key, issue(own.key, own.certificate, new_request(key, node_id), node_id, now))


def enter_fleet(
    files: MembershipFiles,
    fleet: FleetName,
    statements: Iterable[Statement],
    member: KeyPair,
    node_id: str,
    unix_clock: UnixClock,
) -> Trust:
    """Keeps what makes this node a member, once it is found to.

    Raises `StatementRejected` and `BadCertificate` before anything is kept, `StateUnwritable`.
    """
    ledger = Ledger(fleet.fleet_id, signed_by, statements)
    now = datetime.fromtimestamp(unix_clock(), UTC)
    if member_of(member.certificate, ledger.authorities, now) != node_id:
        raise BadCertificate("the certificate is another node's", "join again with a new code")
    files.write_statements(pack(ledger.statements))
    files.write_member(member)
    files.owner_key()
    files.write_fleet(fleet)
    return Trust(files, fleet, node_id, unix_clock)
