"""The certificate of the asked node, and the keepers of its fleet."""

from __future__ import annotations

import time

from kakeya import Liveness
from kakeya_fleet.fleet.diagnosis import certificates
from kakeya_fleet.fleet.diagnosis.finding import Finding
from kakeya_fleet.node.cli.doctor.asked_trust import asked_trust
from kakeya_fleet.node.cli.doctor.site import Site
from kakeya_fleet.node.trust.certificates import MEMBER_LIFE


async def check(site: Site) -> list[Finding]:
    """Asks the local agent; another machine's node is asked there."""
    trust = await asked_trust(site, certificates.CHECK)
    if isinstance(trust, Finding):
        return [trust]
    if trust is None:
        return certificates.certificates(None)
    alive = {each.node_id for each in site.nodes if each.liveness is Liveness.ALIVE}
    keepers = [each.node_id for each in trust.keepers]
    return certificates.certificates(
        certificates.Membership(
            left=trust.certificate_ends_unix - time.time(),
            life=MEMBER_LIFE.total_seconds(),
            keeper_count=len(keepers),
            reached_count=sum(each in alive for each in keepers),
            tensors_in_clear=trust.tensors_in_clear,
        )
    )
