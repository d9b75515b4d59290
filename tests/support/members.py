"""State directories of members, for nodes that are started with them; and their channels."""

from __future__ import annotations

import time
from pathlib import Path

import grpc
import grpc.aio

from kakeya_fleet.node.membership.identity import load_or_create
from kakeya_fleet.node.trust.certificates import new_key, new_request
from kakeya_fleet.node.trust.membership_files import FleetName, KeyPair, MembershipFiles
from kakeya_fleet.node.trust.tls import channel_credentials, channel_options
from kakeya_fleet.node.trust.trust import Trust, enter_fleet, found_fleet

FLEET_AGE = 60 * 86_400.0


def first_keeper(state: Path, fleet_name: str) -> Trust:
    """A fleet, made in a state directory some time ago."""
    node_id, files = _prepared(state)
    found_fleet(files, fleet_name, node_id, lambda: time.time() - FLEET_AGE)
    then = Trust(files, FleetName(fleet_name, _fleet_id(files)), node_id, time.time)
    key, request = then.request()
    then.renewed(key, then.issue(request, node_id))
    return then


def member(state: Path, keeper: Trust, *, age: float = 0.0) -> Trust:
    """A state directory that was let into the keeper's fleet, `age` seconds ago."""

    def unix_clock() -> float:
        return time.time() - age

    node_id, files = _prepared(state)
    then = Trust(keeper.files, keeper.fleet, keeper.node_id, unix_clock)
    key = new_key()
    own = KeyPair(key, then.issue(new_request(key, node_id), node_id))
    statements = keeper.ledger.statements
    return enter_fleet(files, keeper.fleet, statements, own, node_id, unix_clock)


def channel_to(address: str, caller: Trust, node_id: str = "") -> grpc.aio.Channel:
    """To a member's port, with the caller's certificate."""
    return grpc.aio.secure_channel(
        address, channel_credentials(caller), options=channel_options(node_id)
    )


def _fleet_id(files: MembershipFiles) -> str:
    fleet = files.fleet()
    assert fleet is not None
    return fleet.fleet_id


def _prepared(state: Path) -> tuple[str, MembershipFiles]:
    state.mkdir(mode=0o700, parents=True)
    return load_or_create(state / "identity.key").node_id, MembershipFiles(state)
