"""A verifier as a node serves it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.restoration.stores import EvictedStores
from kakeya_fleet.engine.sessions.session_record import KvBudget
from kakeya_fleet.engine.speculation.company import Company
from kakeya_fleet.fleet.cards.card import ModelOffer
from kakeya_fleet.node.grammars.vocabulary import ModelTokenizer
from kakeya_fleet.node.roles.worker import ModelWorker
from kakeya_fleet.node.rpc.refusals import Draining


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ServedVerifier:
    """A loaded verifier, its offer, the thread of its steps, and its sessions' memory.

    `stores` keep in its own process what a session has evicted when no archive is
    left; None where its back end cannot. `source` is the word by which
    `engine.models.model_folder` finds the model's files on this machine. `withdrawn` is
    set once it is to be served no more. `company` are its generations that are under way.
    """

    verifier: Verifier
    offer: ModelOffer
    worker: ModelWorker
    budget: KvBudget
    stores: EvictedStores | None = None
    source: str = ""
    withdrawn: asyncio.Event = field(default_factory=asyncio.Event)
    company: Company = field(default_factory=lambda: Company(time.monotonic))

    @property
    def tokenizer(self) -> ModelTokenizer:
        """Where its tokenizer is, for grammars."""
        offer = self.offer
        return ModelTokenizer(
            offer.model_id, self.source, offer.tokenizer_digest, offer.vocabulary_size
        )

    def refuse_when_withdrawn(self) -> None:
        """Raises `Draining`."""
        if self.withdrawn.is_set():
            raise Draining(
                f"{self.offer.model_id} is served here no more; resume the session elsewhere"
            )
