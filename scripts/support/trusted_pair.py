"""Two members of a fleet with an authority, in state directories without nodes."""

from __future__ import annotations

import time
from pathlib import Path

from kakeya_fleet.node.membership.identity import load_or_create
from kakeya_fleet.node.trust.certificates import new_key, new_request
from kakeya_fleet.node.trust.membership_files import KeyPair, MembershipFiles
from kakeya_fleet.node.trust.trust import Trust, enter_fleet, found_fleet

IDENTITY = "identity.key"


def trusted_pair(
    folder: Path, fleet_name: str = "bench", *, age_seconds: float = 0.0
) -> tuple[Trust, Trust]:
    """A keeper in `folder`/keeper and a member in `folder`/member, let in so long ago.

    The keeper's own certificate is new.
    """

    def then() -> float:
        return time.time() - age_seconds

    keeper_files, keeper_id = _new(folder / "keeper")
    founder = found_fleet(keeper_files, fleet_name, keeper_id, then)
    files, node_id = _new(folder / "member")
    key = new_key()
    own = KeyPair(key, founder.issue(new_request(key, node_id), node_id))
    statements = founder.ledger.statements
    member = enter_fleet(files, founder.fleet, statements, own, node_id, then)
    keeper = Trust(keeper_files, founder.fleet, keeper_id, time.time)
    key, request = keeper.request()
    keeper.renewed(key, keeper.issue(request, keeper_id))
    return keeper, member


def member_at(state: Path) -> Trust:
    """The member whose state directory that is. Raises `ValueError` for none."""
    node_id = load_or_create(state / IDENTITY).node_id
    trust = Trust.open(MembershipFiles(state), node_id, time.time)
    if trust is None:
        raise ValueError(f"{state} is of no member")
    return trust


def _new(state: Path) -> tuple[MembershipFiles, str]:
    state.mkdir(mode=0o700, parents=True)
    return MembershipFiles(state), load_or_create(state / IDENTITY).node_id
