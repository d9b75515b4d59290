"""Whether the asked node offers a ring, and what on its machine speaks against one."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence

from kakeya_fleet.fleet.diagnosis import ring
from kakeya_fleet.fleet.diagnosis.finding import Finding, not_run
from kakeya_fleet.node.cli.doctor.site import Site


async def check(site: Site) -> list[Finding]:
    """By the card, and by what the agent was started with."""
    if site.node is None:
        return [not_run(ring.CHECK, site.absence)]
    card = site.node.card
    if site.agent is None and not card.ring_address:
        cause = f"{card.name} offers none; only on its own machine can be seen why."
        return [not_run(ring.CHECK, cause)]
    links = ""
    if site.agent is not None and not card.ring_address:
        links = links_setting(site.process.cmdline(), site.process.environ())
    facts = ring.RingFacts(
        ring_address=card.ring_address,
        links=links,
        has_mlx=importlib.util.find_spec("mlx") is not None,
        has_ipv4=any(not each.startswith("[") for each in card.addresses),
        serves=bool(card.models) or card.archive is not None,
        age_seconds=max(0.0, time.time() - site.node.started_at_unix),
    )
    return [ring.ring(facts)]


def links_setting(words: Sequence[str], environment: dict[str, str]) -> str:
    """`--links` of an agent, by its command line or else its environment; empty for neither.

    One that is set in a configuration file alone is not seen.
    """
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--links":
            return following
        if word.startswith("--links="):
            return word.partition("=")[2]
    return environment.get("KAKEYA_LINKS", "")
