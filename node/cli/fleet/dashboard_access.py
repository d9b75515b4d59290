"""As whom the dashboard calls nodes, in the words of `dashboard/server/access.ts`."""

from __future__ import annotations

from kakeya import Owner, Tls
from kakeya.credentials import Credentials
from kakeya_fleet.node.cli.asking.access import access_of
from kakeya_fleet.node.cli.asking.memberships import place_for, places_here


def told_access(named: str) -> dict[str, object]:
    """What holds now; `named` is the node to ask first, host:port, empty for any of here.

    Another answer once a certificate was renewed, or an agent has begun or ended. Raises
    `CommandFailed`.
    """
    memberships: dict[str, object] = {}
    nodes: dict[str, object] = {}
    places = places_here()
    for place in places:
        if not place.address:
            continue
        access = access_of(place, place.address)
        nodes[place.address] = _told_node(str(place.folder), access.tls, access.owner)
        if access.tls is not None:
            memberships[str(place.folder)] = _told_tls(access.tls)
    other = place_for(named, places) if named else None
    if other is not None:
        tls = access_of(other, named).tls
        if tls is not None:
            memberships[str(other.folder)] = _told_tls(tls)
    return {
        "memberships": memberships,
        "nodes": nodes,
        "named": str(other.folder) if other is not None else "",
    }


def _told_node(folder: str, tls: Tls | None, owner: Owner | None) -> dict[str, str]:
    return {
        "membership": folder if tls is not None else "",
        "ownerKey": owner.key if owner is not None else "",
        "ownerName": (owner.server_name or "") if owner is not None else "",
    }


def _told_tls(tls: Tls) -> dict[str, str]:
    pems = Credentials.of(None, tls).pems()
    assert pems is not None
    told = {
        "ca": pems.ca_certificates,
        "certificate": pems.client_certificate,
        "key": pems.client_key,
    }
    return {
        **{name: pem.decode("ascii") for name, pem in told.items() if pem is not None},
        "serverName": tls.server_name or "",
    }
