"""How many bytes the messages of the control plane are.

What protobuf makes of them, and no more: the heads of gRPC, HTTP/2, TLS, TCP and IP, which
depend on how calls share packets, come on top. An element's size is found by encoding it
once; elements are far fewer than the messages that they travel in.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from kakeya.v1 import capability_pb2
from kakeya_fleet.fleet.cards.card import PROTOCOL_MAX, PROTOCOL_MIN, Card, SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership.digest import DigestEntry, DigestPart
from kakeya_fleet.fleet.membership.exchange import ExchangeAnswer, ExchangeMessage
from kakeya_fleet.node.membership.capability_wire import digest_to_wire, rumours_to_wire
from kakeya_fleet.node.membership.card_wire import card_to_wire
from scripts.simulator.cards import FLEET_NAME

KEY_BYTES = 8
# A field's number and kind: all of these messages have numbers below 16.
TAG_BYTES = 1


def request_bytes(message: ExchangeMessage) -> int:
    """Of an `ExchangeCapabilitiesRequest`."""
    wanted = KEY_BYTES * len(message.wanted_node_keys)
    return (
        _request_head(message.sender_id, len(message.root_hash))
        + sum(map(_card_field, message.cards))
        + _rumours(message.rumours)
        + (_delimited(wanted) if wanted else 0)
    )


def answer_bytes(answer: ExchangeAnswer) -> int:
    """Of an `ExchangeCapabilitiesResponse` that skipped nothing."""
    return (
        _answer_head(answer.sender_id, len(answer.root_hash))
        + sum(map(_card_field, answer.cards))
        + _rumours(answer.rumours)
        + (0 if answer.digest is None else _digest(answer.digest))
    )


@lru_cache
def probe_bytes(node_id: str, timeout_seconds: float) -> int:
    """Of a `ProbePeerRequest`."""
    return capability_pb2.ProbePeerRequest(
        node_id=node_id, timeout_seconds=timeout_seconds
    ).ByteSize()


PROBED_BYTES = capability_pb2.ProbePeerResponse(reachable=True, round_trip_seconds=0.001).ByteSize()
PING_BYTES = capability_pb2.GetNodeRequest().ByteSize()


@lru_cache(maxsize=65536)
def pong_bytes(card: Card) -> int:
    """Of a `GetNodeResponse` that tells of the card alone."""
    return capability_pb2.GetNodeResponse(card=card_to_wire(card)).ByteSize()


def _delimited(size: int) -> int:
    """A field of so many bytes, with its tag and its length."""
    return TAG_BYTES + max(1, (size.bit_length() + 6) // 7) + size


@lru_cache(maxsize=65536)
def _request_head(sender_id: str, root_size: int) -> int:
    return capability_pb2.ExchangeCapabilitiesRequest(
        sender_node_id=sender_id,
        fleet_name=FLEET_NAME,
        protocol_min=PROTOCOL_MIN,
        protocol_max=PROTOCOL_MAX,
        root_hash=bytes(root_size),
    ).ByteSize()


@lru_cache(maxsize=65536)
def _answer_head(sender_id: str, root_size: int) -> int:
    return capability_pb2.ExchangeCapabilitiesResponse(
        sender_node_id=sender_id, root_hash=bytes(root_size)
    ).ByteSize()


def _card_field(signed: SignedCard) -> int:
    return _signed(len(signed.card_bytes), len(signed.signature))


@lru_cache(maxsize=65536)
def _signed(card_size: int, signature_size: int) -> int:
    message = capability_pb2.SignedCard(card=bytes(card_size), signature=bytes(signature_size))
    return _delimited(message.ByteSize())


def _rumours(rumours: Iterable[Rumour]) -> int:
    return sum(
        _rumour(len(each.node_id), each.incarnation, each.liveness, len(each.signature))
        for each in rumours
    )


@lru_cache(maxsize=65536)
def _rumour(id_size: int, incarnation: int, liveness: Liveness, signature_size: int) -> int:
    (message,) = rumours_to_wire(
        [Rumour("0" * id_size, incarnation, liveness, bytes(signature_size))]
    )
    return _delimited(message.ByteSize())


def _digest(part: DigestPart) -> int:
    return _range(part.first_key, part.last_key) + sum(map(_line, part.lines))


@lru_cache
def _range(first_key: int, last_key: int) -> int:
    return capability_pb2.ExchangeCapabilitiesResponse(
        digest_first_key=first_key, digest_last_key=last_key
    ).ByteSize()


@lru_cache(maxsize=65536)
def _line(entry: DigestEntry) -> int:
    (message,) = digest_to_wire([entry])
    return _delimited(message.ByteSize())
