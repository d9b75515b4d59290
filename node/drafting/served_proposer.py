"""A proposer as a node serves it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.proposers.contract import Proposer
from engine.running import Runner
from fleet.card import ModelOffer


@dataclass(frozen=True, slots=True)
class ServedProposer:
    """A loaded proposer, its offer, and what runs its steps.

    A lookup of microseconds runs inline on the event loop; a model has a thread.
    """

    proposer: Proposer
    offer: ModelOffer
    run: Runner
