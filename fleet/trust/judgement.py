"""Which statements hold, of all that are known: the same ones on every node.

Authority comes from the first keeper, whose key is the fleet's id: a keeper is who was named by
a keeper. Keepers rank by how far they are from the first one, of equals by their ids, and what
a senior says counts before what a junior says. So two that put each other out are not both out:
the senior stays. Of a keeper that is out, only what its revocation upholds counts from then on.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.trust.keys import ApplicationKey
from kakeya_fleet.fleet.trust.statements import (
    AllowedRoles,
    Keeper,
    KeyRevocation,
    Revocation,
    Statement,
)


@dataclass(frozen=True, slots=True)
class Allowance:
    """The roles that a node may serve for others, None for all, and the statements that say so."""

    roles: frozenset[Role] | None
    said_by: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Judgement:
    """`keepers` by authority id, those that were put out too; `upheld` by revoked node.

    `keys` are those of applications, by their digests, `revoked_keys` the ids of those that are
    in force no more. `allowances` are of the nodes of which something is said.
    """

    holding: tuple[Statement, ...]
    keepers: Mapping[str, Keeper]
    upheld: Mapping[str, frozenset[bytes]]
    keys: Mapping[bytes, ApplicationKey]
    revoked_keys: frozenset[str]
    allowances: Mapping[str, Allowance]

    @property
    def present(self) -> Mapping[str, Keeper]:
        """Keepers that are members, by authority id."""
        return {
            authority: keeper
            for authority, keeper in self.keepers.items()
            if keeper.node_id not in self.upheld
        }


def judge(fleet_id: str, statements: Iterable[Statement]) -> Judgement:
    """What holds. Signatures are known to be right."""
    by_signer: dict[str, list[Statement]] = defaultdict(list)
    for statement in statements:
        by_signer[statement.signer].append(statement)
    for said in by_signer.values():
        said.sort(key=lambda statement: statement.digest)
    upheld: dict[str, frozenset[bytes]] = {}
    counted: set[bytes] = set()
    while True:
        holding, keepers = _read(fleet_id, by_signer, upheld)
        further = next((each for each in holding if _is_new(each, counted)), None)
        if further is None:
            return Judgement(tuple(holding), keepers, upheld, *_keys(holding), _allowances(holding))
        # What holds is read again under each revocation: it may take back what comes after it.
        counted.add(further.digest)
        says = further.says
        if isinstance(says, Revocation):
            upheld[says.node_id] = upheld.get(says.node_id, says.upheld) & says.upheld


def _keys(
    holding: Sequence[Statement],
) -> tuple[Mapping[bytes, ApplicationKey], frozenset[str]]:
    """Of two that say something of the same key the senior is believed."""
    keys: dict[bytes, ApplicationKey] = {}
    for statement in holding:
        if isinstance(statement.says, ApplicationKey):
            keys.setdefault(statement.says.digest, statement.says)
    said = (statement.says for statement in holding)
    return keys, frozenset(each.key_id for each in said if isinstance(each, KeyRevocation))


def _allowances(holding: Sequence[Statement]) -> Mapping[str, Allowance]:
    said = [
        (statement.digest, statement.says)
        for statement in holding
        if isinstance(statement.says, AllowedRoles)
    ]
    replaced = {(says.node_id, digest) for _, says in said for digest in says.replaced}
    found: dict[str, Allowance] = {}
    for digest, says in said:
        if (says.node_id, digest) in replaced:
            continue
        other = found.get(says.node_id, Allowance(None, frozenset()))
        found[says.node_id] = Allowance(_both(says.roles, other.roles), other.said_by | {digest})
    return found


def _both(one: frozenset[Role] | None, other: frozenset[Role] | None) -> frozenset[Role] | None:
    if one is None or other is None:
        return one if other is None else other
    return one & other


def _is_new(statement: Statement, counted: set[bytes]) -> bool:
    return isinstance(statement.says, Revocation) and statement.digest not in counted


def _read(
    fleet_id: str,
    by_signer: Mapping[str, Sequence[Statement]],
    upheld: Mapping[str, frozenset[bytes]],
) -> tuple[list[Statement], dict[str, Keeper]]:
    """What holds under these revocations, seniors first, and whom it names as keepers."""
    holding: list[Statement] = []
    keepers: dict[str, Keeper] = {}
    waiting: list[tuple[int, str]] = [(0, fleet_id)]
    seen = {fleet_id}
    while waiting:
        depth, authority = heapq.heappop(waiting)
        said = by_signer.get(authority, ())
        if authority == fleet_id:
            # The first keeper names itself.
            own = next((each.says for each in said if _names(each, fleet_id)), None)
            if not isinstance(own, Keeper):
                return [], {}
            keepers[fleet_id] = own
        for statement in said:
            allowed = upheld.get(keepers[authority].node_id)
            if allowed is not None and statement.digest not in allowed:
                continue
            says = statement.says
            if isinstance(says, Keeper):
                if says.authority_id != fleet_id and says.authority_id in seen:
                    continue
                if says.authority_id not in seen:
                    seen.add(says.authority_id)
                    keepers[says.authority_id] = says
                    heapq.heappush(waiting, (depth + 1, says.authority_id))
            holding.append(statement)
    return holding, keepers


def _names(statement: Statement, authority: str) -> bool:
    return isinstance(statement.says, Keeper) and statement.says.authority_id == authority
