"""How large messages may be: of the control plane for those who read, and answers of any kind."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from kakeya_fleet.node.rpc.grpc_settings import CONTROL_MESSAGE_BYTES, DATA_MESSAGE_BYTES
from kakeya_fleet.node.rpc.refusals import AnswerTooLarge


def beyond_limits(message: Message, limits: Mapping[str, int]) -> str:
    """What of the message is more than allowed, in words; empty when all of it may be read."""
    if message.ByteSize() > CONTROL_MESSAGE_BYTES:
        return f"{message.ByteSize()} bytes are more than {CONTROL_MESSAGE_BYTES}"
    for name, most in limits.items():
        given = len(getattr(message, name))
        if given > most:
            return f"{given} {name} are more than {most}"
    return ""


def check_answer(message: Message) -> None:
    """Raises `AnswerTooLarge` for one that gRPC would not send, with no reason for the caller."""
    nbytes = message.ByteSize()
    if nbytes > DATA_MESSAGE_BYTES:
        raise AnswerTooLarge(
            f"the answer takes {nbytes:,} bytes, more than the {DATA_MESSAGE_BYTES:,} of a message"
        )
