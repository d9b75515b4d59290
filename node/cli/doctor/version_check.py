"""Software and protocol versions, as the cards say, and of this very command."""

from __future__ import annotations

from kakeya import Liveness
from kakeya_fleet import VERSION
from kakeya_fleet.fleet.cards.card import PROTOCOL_MAX, PROTOCOL_MIN
from kakeya_fleet.fleet.diagnosis import versions
from kakeya_fleet.fleet.diagnosis.finding import Finding, not_run
from kakeya_fleet.node.cli.doctor.site import Site

_PRESENT = (Liveness.ALIVE, Liveness.SUSPECT)


async def check(site: Site) -> list[Finding]:
    """Compares all nodes that are present with each other and with this command."""
    if site.node is None:
        return [not_run(versions.CHECK, site.absence)]
    spoken = [
        versions.Spoken(
            each.name, each.card.software_version, each.card.protocol_min, each.card.protocol_max
        )
        for each in site.nodes
        if each.card is not None and each.liveness in _PRESENT
    ]
    own = VERSION
    if all(own != each.software for each in spoken):
        spoken.append(versions.Spoken("this command", own, PROTOCOL_MIN, PROTOCOL_MAX))
    return versions.versions(spoken)
