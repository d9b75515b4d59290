"""Members of a fleet with an authority, made in state directories without any agent."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

from kakeya import Tls
from kakeya_fleet.node.trust.certificates import MEMBER_NAME
from kakeya_fleet.node.trust.membership_files import KeyPair, MembershipFiles
from kakeya_fleet.node.trust.tls import authorities_pem
from kakeya_fleet.node.trust.trust import Trust, enter_fleet, found_fleet


def id_of(name: str) -> str:
    """The id of the node called so."""
    return hashlib.sha256(name.encode()).hexdigest()


def keeper(state: Path, name: str = "mini-1", fleet: str = "home") -> Trust:
    """The first node of a new fleet."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    return found_fleet(MembershipFiles(state), fleet, id_of(name), time.time)


def member(
    state: Path, own: Trust, name: str = "mini-2", clock: Callable[[], float] = time.time
) -> Trust:
    """Another node, let in by the keeper `own`, at the time of `clock`."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    files, node_id = MembershipFiles(state), id_of(name)
    return enter_fleet(
        files, own.fleet, own.ledger.statements, renewal(own, name, clock), node_id, clock
    )


def renewal(own: Trust, name: str, clock: Callable[[], float] = time.time) -> KeyPair:
    """A key, and a certificate by the keeper `own` at the time of `clock`."""
    issuer = Trust(own.files, own.fleet, own.node_id, clock)
    key, request = Trust(own.files, own.fleet, id_of(name), clock).request()
    return KeyPair(key, issuer.issue(request, id_of(name)))


def tls_of(trust: Trust, pair: KeyPair | None = None) -> Tls:
    """How a client shows the certificate of a member."""
    pair = pair or trust.member
    return Tls(authorities_pem(trust), pair.certificate_pem, pair.key_pem, MEMBER_NAME)
