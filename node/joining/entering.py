"""Becoming a member: the code is given for a certificate, and what it needs is kept."""

from __future__ import annotations

import time

from kakeya_fleet.node.config.state_directory import StateDirectory
from kakeya_fleet.node.errors import AlreadyMember
from kakeya_fleet.node.joining.join_client import join
from kakeya_fleet.node.membership.identity import load_or_create
from kakeya_fleet.node.trust.certificates import new_key, new_request
from kakeya_fleet.node.trust.membership_files import FleetName, KeyPair, MembershipFiles
from kakeya_fleet.node.trust.statement_wire import statement_from_bytes
from kakeya_fleet.node.trust.trust import Trust, enter_fleet


async def enter_by_code(code: str, name: str, state: StateDirectory) -> Trust:
    """Makes the node of a state directory a member of the fleet that the code is of.

    Its members' addresses are kept as known peers. Raises `AlreadyMember`, `StatementRejected`
    and `BadCertificate` for a grant that makes nobody a member, and what
    `node.joining.join_client.join` does; then nothing is kept.
    """
    files = MembershipFiles(state.path)
    present = files.fleet()
    if present is not None:
        raise AlreadyMember(
            f"{name} is a member of the fleet {present.name} already",
            f"leave the code out; or give another --name, or rm -r {files.path} for it to leave "
            "that fleet for good",
            fleet_name=present.name,
        )
    identity = load_or_create(state.identity_file)
    key = new_key()
    grant = await join(code, identity, name, new_request(key, identity.node_id))
    fleet = FleetName(grant.fleet_name, grant.fleet_id)
    statements = [statement_from_bytes(each, fleet.fleet_id) for each in grant.statements]
    member = KeyPair(key, grant.certificate)
    trust = enter_fleet(files, fleet, statements, member, identity.node_id, time.time)
    state.remember_peers(grant.peers)
    return trust
