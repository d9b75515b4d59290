"""Clients of nodes, with what shows them who calls: the one place of the commands that makes any.

Within a fleet that has an authority a person acts with the certificate of a node of this
machine, and towards that very node also with its owner's key; both can be read by who may act
so, and by nobody else. Nodes of other fleets are called in plain text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kakeya import AsyncClient, Client, Owner, Timeouts, Tls
from kakeya.connection import Connection
from kakeya.credentials import Credentials
from kakeya.retries import RetryBudget
from kakeya_fleet.node.cli.asking.memberships import Place, place_for, places_here
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.cli.shell.remedies import sentence


@dataclass(frozen=True, slots=True)
class Access:
    """How one node is called; in plain text without `tls`."""

    tls: Tls | None = None
    owner: Owner | None = None


class Callers:
    """As whom nodes are called, by the state directories of when it was made.

    Certificates that are renewed later count as soon as connections are made anew.
    """

    def __init__(self, via: str = "") -> None:
        """`via` is the node, host:port, that tells of the others; empty for none."""
        self._places = places_here()
        self._via = via

    def access(self, address: str) -> Access:
        """How the node at host:port is called. Raises `CommandFailed`."""
        place = place_for(address, self._places, self._via)
        return access_of(place, address) if place is not None else Access()

    def client(self, address: str, timeouts: Timeouts | None = None) -> AsyncClient:
        """A client of the node at host:port. Raises `CommandFailed`."""
        access = self.access(address)
        return AsyncClient(address, timeouts=timeouts, tls=access.tls, owner=access.owner)

    def connection(self, address: str, timeouts: Timeouts) -> Connection:
        """One connection to the node at host:port, without a fleet. Raises `CommandFailed`."""
        access = self.access(address)
        credentials = Credentials.of(None, access.tls, access.owner)
        return Connection(address, timeouts, RetryBudget(), credentials)


def client_of(address: str) -> AsyncClient:
    """A client of the node at host:port. Raises `CommandFailed`."""
    return Callers().client(address)


def blocking_client_of(address: str) -> Client:
    """The same for synchronous code."""
    access = Callers().access(address)
    return Client(address, tls=access.tls, owner=access.owner)


def access_of(place: Place, address: str) -> Access:
    """How a node of here calls the one at host:port, maybe itself. Raises `CommandFailed`."""
    if not place.fleet_id:
        return Access()
    from kakeya_fleet.node.errors import NodeError
    from kakeya_fleet.node.trust.certificates import MEMBER_NAME, name_of_node, named_node
    from kakeya_fleet.node.trust.membership_files import MembershipFiles

    files = MembershipFiles(place.folder)
    try:
        node_id = named_node(files.member().certificate)
        member = files.member_file
        tls = Tls(lambda: _authorities(place.folder, node_id), member, member, MEMBER_NAME)
        if address == place.local_address:
            # It stays on this machine, in plain text.
            return Access(None, Owner(files.owner_key()))
        if address != place.address:
            return Access(tls)
        return Access(tls, Owner(files.owner_key(), name_of_node(node_id)))
    except NodeError as error:
        raise CommandFailed(error.reason, sentence(str(error)), metadata=error.metadata) from error


def _authorities(folder: Path, node_id: str) -> bytes:
    statements = folder / "trust" / "statements"
    return _authorities_at(folder, node_id, statements.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _authorities_at(folder: Path, node_id: str, _changed_ns: int) -> bytes:
    """Verified once for each change: a fleet has many nodes, each with a connection."""
    import time

    from kakeya_fleet.node.trust.membership_files import MembershipFiles
    from kakeya_fleet.node.trust.tls import authorities_pem
    from kakeya_fleet.node.trust.trust import Trust

    trust = Trust.open(MembershipFiles(folder), node_id, time.time)
    return b"" if trust is None else authorities_pem(trust)
