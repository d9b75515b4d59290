"""Members of fleets with an authority, with real keys, certificates and files."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

from kakeya import Tls
from kakeya_fleet.node.trust.certificates import MEMBER_NAME, new_key, new_request
from kakeya_fleet.node.trust.membership_files import KeyPair, MembershipFiles
from kakeya_fleet.node.trust.tls import authorities_pem
from kakeya_fleet.node.trust.trust import Trust, enter_fleet, found_fleet


def id_of(name: str) -> str:
    """A node id: 64 hexadecimal digits."""
    return hashlib.sha256(name.encode()).hexdigest()


def fleet_of(folder: Path, count: int, unix_clock: Callable[[], float] = time.time) -> list[Trust]:
    """A fleet of so many members, the first of which is its keeper."""
    keeper = found_fleet(_files(folder, "0"), folder.name, id_of(f"{folder} 0"), unix_clock)
    return [keeper, *(member_of(keeper, folder, str(n), unix_clock) for n in range(1, count))]


def old_fleet_of(folder: Path, count: int) -> list[Trust]:
    """The same, founded nine days ago: certificates of its first days have ended."""
    (then,) = fleet_of(folder, 1, lambda: time.time() - 9 * 86400)
    keeper = Trust(then.files, then.fleet, then.node_id, time.time)
    renew(keeper, keeper)
    return [keeper, *(member_of(keeper, folder, str(n)) for n in range(1, count))]


def member_of(
    keeper: Trust, folder: Path, name: str, unix_clock: Callable[[], float] = time.time
) -> Trust:
    """One more member, let in at the time of `unix_clock`."""
    node_id, key = id_of(f"{folder} {name}"), new_key()
    then = Trust(keeper.files, keeper.fleet, keeper.node_id, unix_clock)
    own = KeyPair(key, then.issue(new_request(key, node_id), node_id))
    statements = keeper.ledger.statements
    return enter_fleet(_files(folder, name), keeper.fleet, statements, own, node_id, unix_clock)


def renew(member: Trust, keeper: Trust) -> None:
    """A new key and certificate for a member."""
    key, request = member.request()
    member.renewed(key, keeper.issue(request, member.node_id))


def put_out(keeper: Trust, node_id: str, *hear: Trust) -> None:
    """The keeper puts a node out, and so many others hear of it."""
    keeper.revoke(node_id)
    for member in hear:
        member.merge(keeper.ledger.statements)


def tls_of(trust: Trust, pair: KeyPair | None = None) -> Tls:
    """How a client shows a certificate of the fleet, the member's own unless given."""
    pair = pair or trust.member
    return Tls(authorities_pem(trust), pair.certificate_pem, pair.key_pem, MEMBER_NAME)


def _files(folder: Path, name: str) -> MembershipFiles:
    state = folder / name
    state.mkdir(parents=True)
    return MembershipFiles(state)
