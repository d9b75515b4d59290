"""The asked node itself, and the peers that it was told of."""

from __future__ import annotations

from kakeya_fleet.fleet.diagnosis import agents
from kakeya_fleet.fleet.diagnosis.finding import Finding, not_run
from kakeya_fleet.node.cli.doctor.site import Site


async def agent(site: Site) -> list[Finding]:
    """Whether it answers, and how it is."""
    if site.trouble is not None:
        return [site.trouble]
    if site.node is None:
        return []
    card = site.node.card
    return [
        agents.agent(
            agents.AgentState(
                name=card.name,
                address=site.address,
                fleet_name=card.fleet_name,
                pid=site.agent.process_id if site.agent is not None else 0,
                is_draining=site.node.draining,
            )
        )
    ]


async def seeds(site: Site) -> list[Finding]:
    """Whether it joined each of its seed peers."""
    if site.node is None:
        return [not_run(agents.SEEDS, site.absence)]
    faults = site.node.seed_faults
    return agents.seeds([agents.SeedTrouble(each.message, each.mend) for each in faults])
