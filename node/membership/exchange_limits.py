"""What one message of an exchange may carry, for those who ask and those who answer alike."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from kakeya_fleet.fleet.membership.digest import MAX_DIGEST_LINES
from kakeya_fleet.fleet.membership.reconciliation import (
    MAX_CARDS_A_MESSAGE,
    MAX_RUMOURS_A_MESSAGE,
    MAX_WANTED_KEYS,
)
from kakeya_fleet.node.rpc.grpc_settings import CONTROL_MESSAGE_BYTES

REQUEST_LIMITS: Mapping[str, int] = {
    "cards": MAX_CARDS_A_MESSAGE,
    "rumours": MAX_RUMOURS_A_MESSAGE,
    "wanted_node_keys": MAX_WANTED_KEYS,
}
"""Of ExchangeCapabilitiesRequest: the most elements of each field."""
ANSWER_LIMITS: Mapping[str, int] = {
    "cards": MAX_CARDS_A_MESSAGE,
    "rumours": MAX_RUMOURS_A_MESSAGE,
    "digest": MAX_DIGEST_LINES,
    "skipped": MAX_CARDS_A_MESSAGE,
}
"""Of ExchangeCapabilitiesResponse."""


def beyond_limits(message: Message, limits: Mapping[str, int]) -> str:
    """What of the message is more than allowed, in words; empty when all of it may be read."""
    if message.ByteSize() > CONTROL_MESSAGE_BYTES:
        return f"{message.ByteSize()} bytes are more than {CONTROL_MESSAGE_BYTES}"
    for name, most in limits.items():
        given = len(getattr(message, name))
        if given > most:
            return f"{given} {name} are more than {most}"
    return ""
