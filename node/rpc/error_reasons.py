"""What each reason of an error stands for, as error_reason.proto tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import grpc

from kakeya.v1 import error_reason_pb2

_PREFIX = "ERROR_REASON_"


@dataclass(frozen=True)
class ErrorReason:
    """The statuses and remedies of a reason; a family's statuses hold for its members.

    `status` is None and `http_status` 0 where no call, no request ends with the reason.
    Remedies are a few words without a full stop, empty where messages say them themselves:
    `remedy` for applications, `terminal_remedy` in its place at the terminal.
    `retry_after_seconds` is None where no retry helps.
    """

    status: grpc.StatusCode | None
    http_status: int
    remedy: str
    terminal_remedy: str
    retry_after_seconds: float | None


def _read() -> Mapping[str, ErrorReason]:
    values = error_reason_pb2.ErrorReason.DESCRIPTOR.values
    options = {
        value.name.removeprefix(_PREFIX): value.GetOptions().Extensions[error_reason_pb2.error]
        for value in values
    }

    def meant(name: str) -> ErrorReason:
        told = options[name]
        family = meant(told.family) if told.family else None
        status = grpc.StatusCode[told.status] if told.status else None
        return ErrorReason(
            status=status or (family.status if family else None),
            http_status=told.http_status or (family.http_status if family else 0),
            remedy=told.remedy,
            terminal_remedy=told.terminal_remedy or told.remedy,
            retry_after_seconds=told.retry_after_seconds or None,
        )

    return MappingProxyType({name: meant(name) for name in options if name != "UNSPECIFIED"})


REASONS = _read()
"""By name, as ErrorInfo has it."""
