"""Builds and signs the node's own card; only its owner raises its versions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from kakeya_fleet import VERSION
from kakeya_fleet.fleet.cards.card import (
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    ArchiveOffer,
    Card,
    ModelOffer,
    SignedCard,
)
from kakeya_fleet.fleet.cards.signed_message import left_message
from kakeya_fleet.node.config.config import is_loopback, split_address
from kakeya_fleet.node.config.machine import Machine, seconds_since_boot
from kakeya_fleet.node.config.state_directory import StateDirectory
from kakeya_fleet.node.membership.card_wire import sign_card
from kakeya_fleet.node.membership.identity import Identity

CARD_TTL_SECONDS = 86_400.0
RESERVED_INCARNATIONS = 1024
"""Made durable by one write, so that refutations, which others provoke, cost no disk."""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What the node says of itself; `boot_id` is random at every start."""

    name: str
    fleet_name: str
    boot_id: str
    addresses: tuple[str, ...]
    machine: Machine
    memory_free_bytes: int
    models: tuple[ModelOffer, ...]
    archive: ArchiveOffer | None = None
    http_address: str = ""
    loading: bool = False
    certificate: bytes = b""
    applications_port: int = 0
    https_port: int = 0


class CardMaker:
    """The own card and its successors, of a process that began to run just now.

    `clock` gives seconds since 1970.

    Every incarnation is durable before the card that carries it exists: the first one,
    given by the caller, and those that `raise_to` takes of a reserved range.
    """

    def __init__(
        self,
        identity: Identity,
        state: StateDirectory,
        facts: CardFacts,
        incarnation: int,
        clock: Callable[[], float],
    ) -> None:
        self._identity = identity
        self._state = state
        self._clock = clock
        self._began = seconds_since_boot()
        # `raise_to` runs in threads of its own, and may write to the disk, for which no
        # change of the card waits.
        self._changing = threading.Lock()
        self._raising = threading.Lock()
        self._reserved = range(0)
        self._current = sign_card(self._first(facts, incarnation), identity)

    @property
    def current(self) -> SignedCard:
        """The latest card."""
        return self._current

    def raise_to(self, incarnation: int) -> SignedCard:
        """The same card under `incarnation` or a higher one.

        Raises `StateUnwritable` or `IncarnationCorrupt`.
        """
        with self._raising:
            least = max(incarnation, self._current.card.incarnation + 1)
            if least not in self._reserved:
                self._reserved = self._state.reserve_incarnations(RESERVED_INCARNATIONS, least - 1)
                least = self._reserved.start
            with self._changing:
                return self._succeed(replace(self._current.card, incarnation=least, sequence=0))

    def change(self, models: tuple[ModelOffer, ...], memory_free_bytes: int) -> SignedCard:
        """The card with other models; its sequence rises by one."""
        with self._changing:
            return self._succeed(
                replace(
                    self._current.card,
                    sequence=self._current.card.sequence + 1,
                    models=models,
                    memory_free_bytes=memory_free_bytes,
                )
            )

    def offers(
        self,
        models: tuple[ModelOffer, ...],
        archive: ArchiveOffer | None,
        memory_free_bytes: int,
        *,
        loading: bool,
    ) -> SignedCard:
        """The card with what is served now; its sequence rises by one."""
        with self._changing:
            return self._succeed(
                replace(
                    self._current.card,
                    sequence=self._current.card.sequence + 1,
                    models=models,
                    archive=archive,
                    memory_free_bytes=memory_free_bytes,
                    loading=loading,
                )
            )

    def offer_ring(self, address: str) -> SignedCard:
        """The card with a ring at the host of host:port; its sequence rises by one."""
        with self._changing:
            card = self._current.card
            return self._succeed(replace(card, sequence=card.sequence + 1, ring_address=address))

    def move(self, addresses: tuple[str, ...], http_address: str) -> SignedCard:
        """The card of a node that answers elsewhere now; its sequence rises by one.

        A ring goes along to the best IPv4 address, which MLX's takes alone.
        """
        with self._changing:
            card = self._current.card
            ring = card.ring_address
            stays = ring in addresses or not ring or is_loopback(split_address("links", ring)[0])
            four = next((each for each in addresses if not each.startswith("[")), "")
            return self._succeed(
                replace(
                    card,
                    sequence=card.sequence + 1,
                    addresses=addresses,
                    http_address=http_address,
                    ring_address=ring if stays else four,
                )
            )

    def certify(self, certificate: bytes) -> SignedCard:
        """The card with a renewed certificate; its sequence rises by one."""
        with self._changing:
            card = self._current.card
            return self._succeed(replace(card, sequence=card.sequence + 1, certificate=certificate))

    def farewell(self) -> bytes:
        """The signature with which the current card leaves."""
        card = self._current.card
        return self._identity.sign(left_message(card.node_id, card.incarnation))

    def _succeed(self, card: Card) -> SignedCard:
        announced = replace(
            card,
            announced_at_unix=self._clock(),
            running_seconds=seconds_since_boot() - self._began,
        )
        self._current = sign_card(announced, self._identity)
        return self._current

    def _first(self, facts: CardFacts, incarnation: int) -> Card:
        return Card(
            node_id=self._identity.node_id,
            name=facts.name,
            fleet_name=facts.fleet_name,
            boot_id=facts.boot_id,
            incarnation=incarnation,
            sequence=0,
            public_key=self._identity.public_key,
            addresses=facts.addresses,
            platform=facts.machine.platform,
            accelerator=facts.machine.accelerator,
            memory_total_bytes=facts.machine.memory_total_bytes,
            memory_free_bytes=facts.memory_free_bytes,
            software_version=VERSION,
            protocol_min=PROTOCOL_MIN,
            protocol_max=PROTOCOL_MAX,
            models=facts.models,
            ring_address="",
            announced_at_unix=self._clock(),
            ttl_seconds=CARD_TTL_SECONDS,
            archive=facts.archive,
            http_address=facts.http_address,
            loading=facts.loading,
            host_id=facts.machine.host_id,
            certificate=facts.certificate,
            applications_port=facts.applications_port,
            https_port=facts.https_port,
        )
