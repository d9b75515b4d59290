"""Which cards a node accepts; every rule has a name, under which it is counted.

The stamp `announced_at_unix` orders nothing, so that a skewed clock costs
nothing; but a card that claims to come from more than a day ahead shows a
broken clock or a forger, and is refused until the clock is mended.
"""

from __future__ import annotations

import math
from enum import StrEnum

from kakeya_fleet.fleet.cards.address import parse_address
from kakeya_fleet.fleet.cards.card import Card, ModelKind, ModelOffer, Role
from kakeya_fleet.fleet.cards.signed_message import node_id_of
from kakeya_fleet.fleet.errors import CardRejected

MAX_CARD_BYTES = 65536
# Incarnations above it are refused, so that an owner can always raise its own.
MAX_INCARNATION = 2**63 - 1
MAX_SEQUENCE = 2**32 - 1
MAX_BYTES = 2**64 - 1
MAX_FUTURE_SECONDS = 86400.0
MAX_TTL_SECONDS = 30 * 86400.0
MAX_TEXT_CHARACTERS = 256
MAX_HOST_ID_CHARACTERS = 64
MAX_ADDRESSES = 16
MAX_MODELS = 64
MAX_STEP_COSTS = 64
MAX_TAPPED_LAYERS = 256
MAX_HISTORY_LAYERS = 2**16
MAX_RANKS = 64
MAX_DTYPES = 16


class CardRule(StrEnum):
    """Names of the rules, as counted and as sent in SkippedCard."""

    MALFORMED = "MALFORMED"
    OVERSIZE = "OVERSIZE"
    EMPTY_NODE_ID = "EMPTY_NODE_ID"
    WRONG_NODE_ID = "WRONG_NODE_ID"
    WRONG_FLEET = "WRONG_FLEET"
    BAD_SIGNATURE = "BAD_SIGNATURE"
    BAD_INCARNATION = "BAD_INCARNATION"
    BAD_SEQUENCE = "BAD_SEQUENCE"
    BAD_BOOT_ID = "BAD_BOOT_ID"
    BAD_TEXT = "BAD_TEXT"
    NO_ADDRESS = "NO_ADDRESS"
    BAD_ADDRESS = "BAD_ADDRESS"
    BAD_MEMORY = "BAD_MEMORY"
    BAD_PROTOCOL_RANGE = "BAD_PROTOCOL_RANGE"
    BAD_STAMP = "BAD_STAMP"
    FUTURE_STAMP = "FUTURE_STAMP"
    BAD_TTL = "BAD_TTL"
    TOO_MANY_MODELS = "TOO_MANY_MODELS"
    DUPLICATE_MODEL = "DUPLICATE_MODEL"
    UNKNOWN_ROLE = "UNKNOWN_ROLE"
    UNKNOWN_KIND = "UNKNOWN_KIND"
    BAD_MODEL = "BAD_MODEL"
    BAD_STEP_COST = "BAD_STEP_COST"
    BAD_ARCHIVE = "BAD_ARCHIVE"
    FOREIGN_ADDRESS = "FOREIGN_ADDRESS"
    NOT_A_MEMBER = "NOT_A_MEMBER"
    REGISTRY_FULL = "REGISTRY_FULL"


def check_card(card: Card, *, now_unix: float) -> None:
    """Raises `CardRejected` with the first rule that the card breaks.

    `now_unix` is this node's clock in seconds since 1970. Size, fleet and
    signature are the registry's to check.
    """
    _check_identity(card)
    _check_text(card)
    _check_addresses(card)
    _check_machine(card)
    _check_times(card, now_unix)
    _check_models(card)
    _check_archive(card)


def _require(holds: object, rule: CardRule, message: str) -> None:
    if not holds:
        raise CardRejected(rule.value, message)


def _check_identity(card: Card) -> None:
    _require(card.node_id, CardRule.EMPTY_NODE_ID, "the card has no node id")
    _require(
        card.node_id == node_id_of(card.public_key),
        CardRule.WRONG_NODE_ID,
        f"node id {card.node_id[:64]!r} is not the SHA-256 of the card's key",
    )
    _require(
        0 <= card.incarnation <= MAX_INCARNATION,
        CardRule.BAD_INCARNATION,
        f"incarnation {card.incarnation} is outside 0 to 2^63 - 1",
    )
    _require(
        0 <= card.sequence <= MAX_SEQUENCE,
        CardRule.BAD_SEQUENCE,
        f"sequence {card.sequence} is outside 0 to 2^32 - 1",
    )
    _require(card.boot_id, CardRule.BAD_BOOT_ID, "the card has no boot id")


def _check_text(card: Card) -> None:
    texts = (
        card.name,
        card.fleet_name,
        card.boot_id,
        card.platform,
        card.accelerator.kind,
        card.accelerator.name,
        card.software_version,
    )
    dtypes = card.accelerator.dtypes
    _require(
        len(dtypes) <= MAX_DTYPES,
        CardRule.BAD_TEXT,
        f"{len(dtypes)} number formats are more than {MAX_DTYPES}",
    )
    for text in (*texts, *dtypes, card.host_id):
        _require_text(text)
    _require(
        len(card.host_id) <= MAX_HOST_ID_CHARACTERS,
        CardRule.BAD_TEXT,
        f"the host id is longer than {MAX_HOST_ID_CHARACTERS} characters",
    )


def _require_text(text: str) -> None:
    # Names are shown in terminals: control characters would steer them.
    _require(
        len(text) <= MAX_TEXT_CHARACTERS and text.isprintable(),
        CardRule.BAD_TEXT,
        f"{text[:40]!r} is longer than {MAX_TEXT_CHARACTERS} characters or not printable",
    )


def _check_addresses(card: Card) -> None:
    _require(card.addresses, CardRule.NO_ADDRESS, "the card has no address")
    _require(
        len(card.addresses) <= MAX_ADDRESSES,
        CardRule.BAD_ADDRESS,
        f"{len(card.addresses)} addresses are more than {MAX_ADDRESSES}",
    )
    ports = (card.applications_port, card.https_port)
    _require(
        all(0 <= each <= 65535 for each in ports), CardRule.BAD_ADDRESS, "a port is above 65535"
    )
    optional = tuple(each for each in (card.ring_address, card.http_address) if each)
    for address in card.addresses + optional:
        try:
            parse_address(address)
        except ValueError as error:
            raise CardRejected(CardRule.BAD_ADDRESS.value, str(error)) from error


def _check_machine(card: Card) -> None:
    own = card.accelerator
    memory = (card.memory_total_bytes, card.memory_free_bytes)
    for amount in (*memory, own.memory_total_bytes, own.memory_free_bytes):
        _require(
            0 <= amount <= MAX_BYTES,
            CardRule.BAD_MEMORY,
            f"{amount} bytes of memory are outside 0 to 2^64 - 1",
        )
    _require(
        1 <= card.protocol_min <= card.protocol_max <= MAX_SEQUENCE,
        CardRule.BAD_PROTOCOL_RANGE,
        f"protocol versions {card.protocol_min} to {card.protocol_max} are no range",
    )


def _check_times(card: Card, now_unix: float) -> None:
    stamp = card.announced_at_unix
    _require(
        math.isfinite(stamp) and stamp >= 0.0,
        CardRule.BAD_STAMP,
        f"stamp {stamp} is not a finite number of seconds since 1970",
    )
    _require(
        stamp <= now_unix + MAX_FUTURE_SECONDS,
        CardRule.FUTURE_STAMP,
        f"stamp {stamp:.0f} is {stamp - now_unix:.0f} s ahead of this node's clock",
    )
    running = card.running_seconds
    _require(
        math.isfinite(running) and running >= 0.0,
        CardRule.BAD_STAMP,
        f"{running} is no time for which a process runs",
    )
    _require(
        math.isfinite(card.ttl_seconds) and 0.0 < card.ttl_seconds <= MAX_TTL_SECONDS,
        CardRule.BAD_TTL,
        f"ttl {card.ttl_seconds} s is outside 0 to {MAX_TTL_SECONDS:.0f}",
    )


def _check_models(card: Card) -> None:
    _require(
        len(card.models) <= MAX_MODELS,
        CardRule.TOO_MANY_MODELS,
        f"{len(card.models)} models are more than {MAX_MODELS}",
    )
    for offer in card.models:
        _check_offer(offer)
    served = [(offer.model_id, offer.role) for offer in card.models]
    _require(
        len(set(served)) == len(served),
        CardRule.DUPLICATE_MODEL,
        "one model is offered twice in the same role",
    )


def _check_archive(card: Card) -> None:
    archive = card.archive
    if archive is None:
        return
    _require_text(archive.arithmetic)
    _require(
        0 <= archive.free_bytes <= archive.capacity_bytes <= MAX_BYTES,
        CardRule.BAD_ARCHIVE,
        f"{archive.free_bytes} of {archive.capacity_bytes} bytes of an archive are free",
    )
    _require(
        0 < archive.port < 1 << 16,
        CardRule.BAD_ARCHIVE,
        f"an archive answers at no port {archive.port}",
    )


def _check_offer(offer: ModelOffer) -> None:
    _require(isinstance(offer.role, Role), CardRule.UNKNOWN_ROLE, f"unknown role {offer.role!r}")
    _require(
        isinstance(offer.kind, ModelKind), CardRule.UNKNOWN_KIND, f"unknown kind {offer.kind!r}"
    )
    texts = (
        offer.model_id,
        offer.weights_digest,
        offer.tokenizer_digest,
        offer.quantization,
        offer.dtype,
        offer.backend,
        offer.evicted_arithmetic,
        offer.arithmetic,
        offer.architecture,
        offer.target_weights_digest,
        offer.encoder_digest,
    )
    for text in texts:
        _require_text(text)
    _require(offer.model_id, CardRule.BAD_MODEL, "a model has no id")
    _require(
        offer.role is not Role.VERIFIER or offer.kind is ModelKind.AUTOREGRESSIVE,
        CardRule.BAD_MODEL,
        f"{offer.model_id!r} verifies but is {offer.kind}",
    )
    _require(
        offer.tokenizer_digest or offer.kind is ModelKind.NGRAM,
        CardRule.BAD_MODEL,
        f"{offer.model_id!r} has no tokenizer digest",
    )
    counts = (
        offer.vocabulary_size,
        offer.context_length,
        offer.kv_bytes_per_token,
        offer.kv_fixed_bytes,
        offer.feature_width,
        offer.block_size,
        offer.history_layer_count,
        offer.given_history_tokens,
        *offer.tapped_layers,
    )
    _require(
        all(0 <= count <= MAX_BYTES for count in counts),
        CardRule.BAD_MODEL,
        f"{offer.model_id!r} has a size outside 0 to 2^64 - 1",
    )
    _require(
        offer.history_layer_count <= MAX_HISTORY_LAYERS,
        CardRule.BAD_MODEL,
        f"{offer.model_id!r} has more than {MAX_HISTORY_LAYERS} layers",
    )
    _require(
        0 <= offer.rank_count <= (MAX_RANKS if offer.role is Role.VERIFIER else 0),
        CardRule.BAD_MODEL,
        f"{offer.model_id!r} is computed by {offer.rank_count} ranks",
    )
    _check_conditioning(offer)
    _check_step_costs(offer)


def _check_conditioning(offer: ModelOffer) -> None:
    """An encoder is told whole or not at all, and by proposers alone."""
    told = (offer.feature_width > 0, bool(offer.encoder_digest), bool(offer.tapped_layers))
    _require(
        all(told) or not any(told),
        CardRule.BAD_MODEL,
        f"{offer.model_id!r} tells only a part of its encoder",
    )
    _require(
        offer.role is Role.PROPOSER
        or not (
            any(told)
            or offer.target_weights_digest
            or offer.block_size
            or offer.given_history_tokens
        ),
        CardRule.BAD_MODEL,
        f"{offer.model_id!r} is no proposer but drafts for a verifier",
    )
    _require(
        len(offer.tapped_layers) <= MAX_TAPPED_LAYERS,
        CardRule.BAD_MODEL,
        f"{offer.model_id!r} taps more than {MAX_TAPPED_LAYERS} layers",
    )


def _check_step_costs(offer: ModelOffer) -> None:
    _require(
        len(offer.step_costs) <= MAX_STEP_COSTS,
        CardRule.BAD_STEP_COST,
        f"{offer.model_id!r} has more than {MAX_STEP_COSTS} step costs",
    )
    least = math.ulp(0.0) if offer.role is Role.VERIFIER else 0.0
    previous = 0
    for cost in offer.step_costs:
        _require(
            cost.token_count > previous,
            CardRule.BAD_STEP_COST,
            f"step costs of {offer.model_id!r} do not rise by token count",
        )
        _require(
            math.isfinite(cost.seconds) and cost.seconds >= least,
            CardRule.BAD_STEP_COST,
            f"a step of {offer.model_id!r} takes {cost.seconds} s",
        )
        previous = cost.token_count
