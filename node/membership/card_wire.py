"""Cards between the wire and the domain.

What travels is the owner's serialized bytes: they are kept as they came, so
that a field of a later version survives nodes that do not know it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from google.protobuf.message import DecodeError

from kakeya.v1 import capability_pb2, model_pb2
from kakeya_fleet.fleet.cards.card import (
    Accelerator,
    ArchiveOffer,
    Card,
    ModelKind,
    ModelOffer,
    Role,
    SignedCard,
    StepCost,
)
from kakeya_fleet.fleet.cards.rules import MAX_CARD_BYTES, CardRule
from kakeya_fleet.fleet.cards.signed_message import card_message
from kakeya_fleet.fleet.errors import CardRejected
from kakeya_fleet.fleet.membership.events import ReceivedCard
from kakeya_fleet.node.membership.identity import Identity
from kakeya_fleet.node.trust.statement_wire import ROLES

Value = TypeVar("Value")

_ROLES: Mapping[int, Role] = MappingProxyType({number: role for role, number in ROLES.items()})
_KINDS: Mapping[int, ModelKind] = MappingProxyType(
    {
        model_pb2.MODEL_KIND_AUTOREGRESSIVE: ModelKind.AUTOREGRESSIVE,
        model_pb2.MODEL_KIND_NGRAM: ModelKind.NGRAM,
        model_pb2.MODEL_KIND_MASKED_DIFFUSION: ModelKind.MASKED_DIFFUSION,
        model_pb2.MODEL_KIND_DFLASH: ModelKind.DFLASH,
    }
)
_KIND_NUMBERS = {kind: number for number, kind in _KINDS.items()}


def sign_card(card: Card, identity: Identity) -> SignedCard:
    """The card as its owner lets it travel."""
    card_bytes = card_to_wire(card).SerializeToString()
    return SignedCard(card, card_bytes, identity.sign(card_message(card_bytes)))


def signed_to_wire(signed: SignedCard) -> capability_pb2.SignedCard:
    """The message of a signed card."""
    return capability_pb2.SignedCard(card=signed.card_bytes, signature=signed.signature)


def signed_from_wire(message: capability_pb2.SignedCard) -> SignedCard:
    """Decodes a signed card; the registry checks its rules and its signature.

    Raises `CardRejected` with OVERSIZE before anything is parsed, MALFORMED,
    UNKNOWN_ROLE or UNKNOWN_KIND.
    """
    if len(message.card) > MAX_CARD_BYTES:
        raise CardRejected(
            CardRule.OVERSIZE, f"{len(message.card)} bytes are more than {MAX_CARD_BYTES}"
        )
    try:
        wire = capability_pb2.CapabilityCard.FromString(message.card)
    except DecodeError as error:
        raise CardRejected(CardRule.MALFORMED, "the bytes are no CapabilityCard") from error
    return SignedCard(card_from_wire(wire), message.card, message.signature)


def received_from_wire(message: capability_pb2.SignedCard) -> ReceivedCard:
    """The decoded card, or the rejection that stands for it in its batch."""
    try:
        return signed_from_wire(message)
    except CardRejected as rejected:
        return rejected


def card_to_wire(card: Card) -> capability_pb2.CapabilityCard:
    """The message of a card."""
    return capability_pb2.CapabilityCard(
        node_id=card.node_id,
        name=card.name,
        fleet_name=card.fleet_name,
        boot_id=card.boot_id,
        incarnation=card.incarnation,
        sequence=card.sequence,
        public_key=card.public_key,
        addresses=card.addresses,
        platform=card.platform,
        accelerator=capability_pb2.Accelerator(
            kind=card.accelerator.kind, name=card.accelerator.name
        ),
        memory_total_bytes=card.memory_total_bytes,
        memory_free_bytes=card.memory_free_bytes,
        software_version=card.software_version,
        protocol_min=card.protocol_min,
        protocol_max=card.protocol_max,
        models=[offer_to_wire(offer) for offer in card.models],
        ring_address=card.ring_address,
        announced_at_unix=card.announced_at_unix,
        ttl_seconds=card.ttl_seconds,
        archive=_archive_to_wire(card.archive),
        http_address=card.http_address,
        loading=card.loading,
        host_id=card.host_id,
        certificate=card.certificate,
        running_seconds=card.running_seconds,
        applications_port=card.applications_port,
        https_port=card.https_port,
        accelerator_memory_total_bytes=card.accelerator.memory_total_bytes,
        accelerator_memory_free_bytes=card.accelerator.memory_free_bytes,
        accelerator_dtypes=card.accelerator.dtypes,
    )


def card_from_wire(wire: capability_pb2.CapabilityCard) -> Card:
    """The card of a message. Raises `CardRejected` for an unknown role or kind."""
    return Card(
        node_id=wire.node_id,
        name=wire.name,
        fleet_name=wire.fleet_name,
        boot_id=wire.boot_id,
        incarnation=wire.incarnation,
        sequence=wire.sequence,
        public_key=wire.public_key,
        addresses=tuple(wire.addresses),
        platform=wire.platform,
        accelerator=Accelerator(
            wire.accelerator.kind,
            wire.accelerator.name,
            wire.accelerator_memory_total_bytes,
            wire.accelerator_memory_free_bytes,
            tuple(wire.accelerator_dtypes),
        ),
        memory_total_bytes=wire.memory_total_bytes,
        memory_free_bytes=wire.memory_free_bytes,
        software_version=wire.software_version,
        protocol_min=wire.protocol_min,
        protocol_max=wire.protocol_max,
        models=tuple(offer_from_wire(offer) for offer in wire.models),
        ring_address=wire.ring_address,
        announced_at_unix=wire.announced_at_unix,
        ttl_seconds=wire.ttl_seconds,
        archive=_archive_from_wire(wire.archive) if wire.HasField("archive") else None,
        http_address=wire.http_address,
        loading=wire.loading,
        host_id=wire.host_id,
        certificate=wire.certificate,
        running_seconds=wire.running_seconds,
        applications_port=wire.applications_port,
        https_port=wire.https_port,
    )


def _archive_to_wire(archive: ArchiveOffer | None) -> capability_pb2.ArchiveOffer | None:
    if archive is None:
        return None
    return capability_pb2.ArchiveOffer(
        capacity_bytes=archive.capacity_bytes,
        free_bytes=archive.free_bytes,
        port=archive.port,
        arithmetic=archive.arithmetic,
    )


def _archive_from_wire(wire: capability_pb2.ArchiveOffer) -> ArchiveOffer:
    return ArchiveOffer(wire.capacity_bytes, wire.free_bytes, wire.port, wire.arithmetic)


def offer_to_wire(offer: ModelOffer) -> model_pb2.ModelOffer:
    """The message of a model offer."""
    return model_pb2.ModelOffer(
        model_id=offer.model_id,
        role=ROLES[offer.role],
        kind=_KIND_NUMBERS[offer.kind],  # type: ignore[arg-type]
        weights_digest=offer.weights_digest,
        tokenizer_digest=offer.tokenizer_digest,
        quantization=offer.quantization,
        dtype=offer.dtype,
        vocabulary_size=offer.vocabulary_size,
        context_length=offer.context_length,
        kv_bytes_per_token=offer.kv_bytes_per_token,
        step_costs=[
            model_pb2.StepCost(token_count=cost.token_count, seconds=cost.seconds)
            for cost in offer.step_costs
        ],
        exact=offer.exact,
        kv_fixed_bytes=offer.kv_fixed_bytes,
        backend=offer.backend,
        architecture=offer.architecture,
        target_weights_digest=offer.target_weights_digest,
        feature_width=offer.feature_width,
        encoder_digest=offer.encoder_digest,
        tapped_layers=offer.tapped_layers,
        block_size=offer.block_size,
        history_layer_count=offer.history_layer_count,
        rank_count=offer.rank_count,
        thread_count=offer.thread_count,
        evicted_arithmetic=offer.evicted_arithmetic,
        arithmetic=offer.arithmetic,
        given_history_tokens=offer.given_history_tokens,
        ends_drafts=offer.ends_drafts,
    )


def offer_from_wire(wire: model_pb2.ModelOffer) -> ModelOffer:
    """The offer of a message. Raises `CardRejected` for an unknown role or kind."""
    return ModelOffer(
        model_id=wire.model_id,
        role=_known(_ROLES, wire.role, CardRule.UNKNOWN_ROLE),
        kind=_known(_KINDS, wire.kind, CardRule.UNKNOWN_KIND),
        weights_digest=wire.weights_digest,
        tokenizer_digest=wire.tokenizer_digest,
        quantization=wire.quantization,
        dtype=wire.dtype,
        vocabulary_size=wire.vocabulary_size,
        context_length=wire.context_length,
        kv_bytes_per_token=wire.kv_bytes_per_token,
        step_costs=tuple(StepCost(cost.token_count, cost.seconds) for cost in wire.step_costs),
        exact=wire.exact,
        kv_fixed_bytes=wire.kv_fixed_bytes,
        backend=wire.backend,
        architecture=wire.architecture,
        target_weights_digest=wire.target_weights_digest,
        feature_width=wire.feature_width,
        encoder_digest=wire.encoder_digest,
        tapped_layers=tuple(wire.tapped_layers),
        block_size=wire.block_size,
        history_layer_count=wire.history_layer_count,
        rank_count=wire.rank_count,
        thread_count=wire.thread_count,
        evicted_arithmetic=wire.evicted_arithmetic,
        arithmetic=wire.arithmetic,
        given_history_tokens=wire.given_history_tokens,
        ends_drafts=wire.ends_drafts,
    )


def _known(values: Mapping[int, Value], number: int, rule: CardRule) -> Value:
    if number not in values:
        raise CardRejected(rule, f"{number} is not known here")
    return values[number]
