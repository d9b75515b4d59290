"""Requests whose bytes do not parse: answered like any bad request.

gRPC itself would answer UNKNOWN or INTERNAL, without details, before any servicer runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError

from kakeya_fleet.node.rpc.refusals import MalformedMessage

Request = TypeVar("Request")


class Unparsed:
    """Stands for a unary request whose bytes do not parse."""


_UNPARSED = Unparsed()


def lenient(deserialize: Callable[[bytes], Request]) -> Callable[[bytes], Request | Unparsed]:
    """A deserializer that never raises."""

    def parse(data: bytes) -> Request | Unparsed:
        try:
            return deserialize(data)
        except DecodeError:
            return _UNPARSED

    return parse


def check_parsed(request: object) -> None:
    """Raises `MalformedMessage` for what `lenient` could not parse."""
    if request is _UNPARSED:
        raise MalformedMessage("the bytes are no request of this method")
