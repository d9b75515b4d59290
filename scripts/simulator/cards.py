"""Cards of simulated nodes: bytes as on the wire, signatures without a secret."""

from __future__ import annotations

import hashlib

from kakeya_fleet.fleet.cards.card import Accelerator, Card, SignedCard
from kakeya_fleet.fleet.cards.signed_message import card_message, node_id_of
from kakeya_fleet.node.membership.card_wire import card_to_wire

FLEET_NAME = "simulated"
NOW_UNIX = 1_700_000_000.0
TTL_SECONDS = 3600.0


def sign(public_key: bytes, message: bytes) -> bytes:
    """Stands for a signature, 64 bytes: without a secret, but it fits one key and one message."""
    return hashlib.sha512(public_key + message).digest()


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Checks what `sign` made."""
    return signature == sign(public_key, message)


def signed(card: Card) -> SignedCard:
    """The card with the bytes that travel and a signature that follows from them.

    Raises `ValueError` for what no message can carry.
    """
    card_bytes = card_to_wire(card).SerializeToString(deterministic=True)
    return SignedCard(card, card_bytes, sign(card.public_key, card_message(card_bytes)))


def simulated_card(index: int) -> Card:
    """The first card of the node with this number, at incarnation 1."""
    public_key = hashlib.sha256(index.to_bytes(8, "big")).digest()
    return Card(
        node_id=node_id_of(public_key),
        name=f"node-{index}",
        fleet_name=FLEET_NAME,
        boot_id=f"boot-{index}",
        incarnation=1,
        sequence=0,
        public_key=public_key,
        addresses=(f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}:7000",),
        platform="linux/x86_64",
        accelerator=Accelerator("cpu", "simulated"),
        memory_total_bytes=1 << 34,
        memory_free_bytes=1 << 33,
        software_version="0",
        protocol_min=1,
        protocol_max=1,
        models=(),
        ring_address="",
        announced_at_unix=NOW_UNIX,
        ttl_seconds=TTL_SECONDS,
    )
