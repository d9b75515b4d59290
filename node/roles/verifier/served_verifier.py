"""A verifier as a node serves it."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.restoration.stores import EvictedStores
from kakeya_fleet.engine.sessions.session_record import KvBudget
from kakeya_fleet.fleet.cards.card import ModelOffer
from kakeya_fleet.node.roles.verifier.worker import ModelWorker


@dataclass(frozen=True, slots=True)
class ServedVerifier:
    """A loaded verifier, its offer, the thread of its steps, and its sessions' memory.

    `stores` keep in its own process what a session has evicted when no archive is
    left; None where its back end cannot. `source` is the word by which
    `engine.models.model_folder` finds the model's files on this machine.
    """

    verifier: Verifier
    offer: ModelOffer
    worker: ModelWorker
    budget: KvBudget
    stores: EvictedStores | None = None
    source: str = ""
