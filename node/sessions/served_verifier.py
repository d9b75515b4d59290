"""A verifier as a node serves it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.session_store import SessionStore
from engine.verifier import Verifier
from fleet.card import ModelOffer
from node.sessions.worker import ModelWorker


@dataclass(frozen=True, slots=True)
class ServedVerifier:
    """A loaded verifier, its offer, the thread of its steps, and its sessions."""

    verifier: Verifier
    offer: ModelOffer
    worker: ModelWorker
    store: SessionStore
