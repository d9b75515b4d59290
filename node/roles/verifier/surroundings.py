"""What the pairings of one node share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kakeya_fleet.node.links.encoder_fetch import EncoderShelf
from kakeya_fleet.node.links.open_links import OpenLinks
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.planning.planner import Planner
from kakeya_fleet.node.roles.proposer.served_proposer import ServedProposer
from kakeya_fleet.node.roles.verifier.breaker_book import BreakerBook


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the pairings of one node share.

    `observe_round_trip` takes each remote draft's round trip in seconds.
    """

    fleet: FleetView
    planner: Planner
    proposers: Mapping[str, ServedProposer]
    breakers: BreakerBook
    observe_round_trip: Callable[[float], None]
    encoders: EncoderShelf
    links: OpenLinks
