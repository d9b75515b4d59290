"""All that a node knows of whom its fleet trusts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.errors import StatementRejected
from kakeya_fleet.fleet.trust.judgement import Judgement, judge
from kakeya_fleet.fleet.trust.keys import MOST_KEYS, ApplicationKey
from kakeya_fleet.fleet.trust.statements import (
    AllowedRoles,
    Keeper,
    OfKeys,
    Statement,
    VerifyStatement,
)

MAX_STATEMENTS = 1024
"""Of keepers and nodes: of a fleet of 50 machines twenty a machine."""
MAX_KEY_STATEMENTS = 3 * MOST_KEYS
"""Of keys of applications: each may be revoked by two keepers at the same time."""
MAX_ROLE_STATEMENTS = 1024
"""Of the roles of nodes, so that they never take the place of a revocation."""
MOST_KNOWN = MAX_STATEMENTS + MAX_KEY_STATEMENTS + MAX_ROLE_STATEMENTS


class Ledger:
    """A set that only grows, and what of it holds. Merging is a union.

    What was signed by nobody who was ever named a keeper is not taken, so that nobody else
    fills it; what a revocation takes the force of stays, for the revocation may lose its own.
    """

    def __init__(
        self, fleet_id: str, verify: VerifyStatement, statements: Iterable[Statement] = ()
    ) -> None:
        """Raises `StatementRejected` when the fleet's first keeper is not among `statements`."""
        self.fleet_id = fleet_id
        self._verify = verify
        self._known: dict[bytes, Statement] = {}
        self._named: dict[str, Keeper] = {}
        """Who was ever named a keeper, by authority id."""
        self._judged: Judgement = judge(fleet_id, ())
        self.merge(statements)
        if fleet_id not in self._named:
            raise StatementRejected(f"nothing names the first keeper of the fleet {fleet_id[:12]}")

    @property
    def statements(self) -> tuple[Statement, ...]:
        """All that are known, by their digests."""
        return tuple(self._known[digest] for digest in sorted(self._known))

    @property
    def judged(self) -> Judgement:
        """What of them holds."""
        return self._judged

    @property
    def keepers(self) -> Mapping[str, Keeper]:
        """Those who are members, by authority id."""
        return self._judged.present

    @property
    def authorities(self) -> tuple[bytes, ...]:
        """Certificates, DER, one of which a member's descends from."""
        return tuple(keeper.certificate for _, keeper in sorted(self.keepers.items()))

    @property
    def former(self) -> Mapping[bytes, frozenset[bytes]]:
        """What is upheld of those that were put out, by their authorities' certificates."""
        judged = self._judged
        return {
            keeper.certificate: judged.upheld[keeper.node_id]
            for keeper in judged.keepers.values()
            if keeper.node_id in judged.upheld
        }

    @property
    def revoked(self) -> frozenset[str]:
        """Node ids that were put out."""
        return frozenset(self._judged.upheld)

    def allowed_roles(self, node_id: str) -> frozenset[Role] | None:
        """The roles that a node may serve for others; None for all."""
        allowance = self._judged.allowances.get(node_id)
        return allowance.roles if allowance is not None else None

    @property
    def keys(self) -> Mapping[bytes, ApplicationKey]:
        """Keys of applications, by their digests, those that were revoked too."""
        return self._judged.keys

    @property
    def revoked_keys(self) -> frozenset[str]:
        """Ids of the keys that are in force no more."""
        return self._judged.revoked_keys

    def root_hash(self) -> bytes:
        """Equal on nodes that know the same, 32 bytes."""
        return hashlib.sha256(b"".join(sorted(self._known))).digest()

    def merge(self, statements: Iterable[Statement]) -> bool:
        """Takes what others know; whether any of it is new.

        Raises `StatementRejected`, and takes none, when there would be more than
        `MAX_STATEMENTS`, or `MAX_KEY_STATEMENTS` of keys, or `MAX_ROLE_STATEMENTS` of roles.
        """
        waiting = {each.digest: each for each in statements if each.digest not in self._known}
        known, named = dict(self._known), dict(self._named)
        while True:
            taken = {
                digest: each for digest, each in waiting.items() if self._is_authentic(each, named)
            }
            if not taken:
                break
            known |= taken
            # Who was named just now may have signed others of them.
            for each in taken.values():
                if isinstance(each.says, Keeper):
                    named.setdefault(each.says.authority_id, each.says)
                del waiting[each.digest]
        of_keys = sum(isinstance(each.says, OfKeys) for each in known.values())
        of_roles = sum(isinstance(each.says, AllowedRoles) for each in known.values())
        others = len(known) - of_keys - of_roles
        if (
            others > MAX_STATEMENTS
            or of_keys > MAX_KEY_STATEMENTS
            or of_roles > MAX_ROLE_STATEMENTS
        ):
            raise StatementRejected(
                f"a fleet has at most {MAX_STATEMENTS} statements, {MAX_KEY_STATEMENTS} of keys "
                f"and {MAX_ROLE_STATEMENTS} of roles"
            )
        is_new = len(known) > len(self._known)
        self._known, self._named = known, named
        if is_new:
            self._judged = judge(self.fleet_id, known.values())
        return is_new

    def _is_authentic(self, statement: Statement, named: Mapping[str, Keeper]) -> bool:
        signer = named.get(statement.signer)
        if signer is None and statement.signer == self.fleet_id:
            # The first keeper's word of itself, of whose key the fleet's id is the digest.
            says = statement.says
            is_own = isinstance(says, Keeper) and says.authority_id == self.fleet_id
            signer = says if isinstance(says, Keeper) and is_own else None
        return signer is not None and self._verify(
            signer.certificate, statement.message, statement.signature
        )
