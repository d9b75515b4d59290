"""How a call fails on the wire: a status, and details as nodes pack them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

if TYPE_CHECKING:
    from typing import TypeAlias

    Context: TypeAlias = aio.ServicerContext[Message, Message]


@dataclass
class Refusal:
    """How a call is refused; with `after`, the work is done and only the answer lost.

    A generation is refused after `after_blocks` blocks; `skip` calls pass before.
    """

    code: grpc.StatusCode
    message: str = "refused"
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    domain: str = "kakeya"
    retry_seconds: float | None = None
    raw_details: bytes | None = None
    after: bool = False
    after_blocks: int = 0
    skip: int = 0

    def trailing(self) -> tuple[tuple[str, bytes], ...]:
        if self.raw_details is not None:
            return (("grpc-status-details-bin", self.raw_details),)
        if not self.reason:
            return ()
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        details = [
            error_details_pb2.ErrorInfo(
                reason=self.reason, domain=self.domain, metadata=self.metadata
            )
        ]
        if self.retry_seconds is not None:
            seconds = int(self.retry_seconds)
            delay = duration_pb2.Duration(
                seconds=seconds, nanos=round((self.retry_seconds - seconds) * 1e9)
            )
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        return (("grpc-status-details-bin", status.SerializeToString()),)
