"""What of a message of the control plane is read: for those who ask and who answer alike."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from kakeya_fleet.node.rpc.grpc_settings import CONTROL_MESSAGE_BYTES


def beyond_limits(message: Message, limits: Mapping[str, int]) -> str:
    """What of the message is more than allowed, in words; empty when all of it may be read."""
    if message.ByteSize() > CONTROL_MESSAGE_BYTES:
        return f"{message.ByteSize()} bytes are more than {CONTROL_MESSAGE_BYTES}"
    for name, most in limits.items():
        given = len(getattr(message, name))
        if given > most:
            return f"{given} {name} are more than {most}"
    return ""
