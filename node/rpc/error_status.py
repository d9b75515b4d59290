"""From a domain error to its gRPC status, and the way to the client.

Every error carries google.rpc.Status with ErrorInfo(reason, "kakeya", metadata)
in the trailing metadata `grpc-status-details-bin` (AIP-193); metadata["mend"]
says how to mend it where the message does not. What passes with time also
carries RetryInfo. Servicers raise domain errors, `node.rpc.error_interceptor`
answers them from here, and `node.rpc.error_reasons` has what their reasons mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import grpc
import grpc.aio
from google.protobuf import any_pb2, duration_pb2, message
from google.rpc import error_details_pb2, status_pb2

from kakeya_fleet.engine import errors as engine_errors
from kakeya_fleet.fleet import errors as fleet_errors
from kakeya_fleet.node import errors as node_errors
from kakeya_fleet.node.rpc import refusals
from kakeya_fleet.node.rpc.error_reasons import REASONS

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[object, object]

DomainError: TypeAlias = (
    engine_errors.EngineError | fleet_errors.FleetError | node_errors.NodeError | refusals.Refusal
)
DOMAIN_ERRORS = (
    engine_errors.EngineError,
    fleet_errors.FleetError,
    node_errors.NodeError,
    refusals.Refusal,
)

DOMAIN = "kakeya"
INTERNAL_REASON = "INTERNAL_ERROR"
REMEDY_KEY = "mend"

_Code = grpc.StatusCode

# A fork past the end of a history asks for what is not there; an append to a history of
# another length is only out of step. Clients know both by one reason.
_OTHER_STATUS: dict[type[DomainError], grpc.StatusCode] = {
    refusals.ForkBeyondHistory: _Code.OUT_OF_RANGE
}

# gRPC drops a call whose trailing metadata pass 8 KiB, and the error with it. The
# message travels twice, percent-encoded (3 bytes for each that is not ASCII) and in
# the details, which are base64: 3 * 1024 + 4 / 3 * (1024 + 2048) bytes at most.
_MAX_MESSAGE_BYTES = 1024
_MAX_METADATA_BYTES = 512
_MAX_ALL_METADATA_BYTES = 2048
_MAX_METADATA_KEYS = 8


def status_code(error: DomainError) -> grpc.StatusCode:
    """The status of the error's reason; INTERNAL for one that no call should end with."""
    return _OTHER_STATUS.get(type(error)) or REASONS[error.reason].status or _Code.INTERNAL


def error_status(error: DomainError) -> status_pb2.Status:
    """google.rpc.Status of the error: code, message, ErrorInfo, RetryInfo."""
    info = error_details_pb2.ErrorInfo(
        reason=error.reason,
        domain=DOMAIN,
        metadata=_bounded(_with_remedy(error)),
    )
    status = _status(status_code(error), str(error), info)
    seconds = _retry_seconds(error)
    if seconds is not None:
        delay = duration_pb2.Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))
        status.details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    return status


def _with_remedy(error: DomainError) -> dict[str, str]:
    """The error's metadata, the remedy first: it is what nobody may miss."""
    remedy = REASONS[error.reason].remedy
    return {REMEDY_KEY: remedy, **error.metadata} if remedy else dict(error.metadata)


def _bounded(metadata: Mapping[str, str]) -> dict[str, str]:
    """The first keys, their values cut so that all of them fit a trailer."""
    kept: dict[str, str] = {}
    left = _MAX_ALL_METADATA_BYTES
    for key, value in list(metadata.items())[:_MAX_METADATA_KEYS]:
        kept[key] = _cut(value, min(_MAX_METADATA_BYTES, left))
        left -= len(kept[key].encode())
    return kept


def _cut(text: str, size: int) -> str:
    """The longest beginning of whole characters within `size` bytes of UTF-8."""
    return text.encode()[:size].decode(errors="ignore")


def _retry_seconds(error: DomainError) -> float | None:
    """Seconds after which a retry may succeed; None when no retry will."""
    said = error.metadata.get("retry_after_seconds")
    return float(said) if said is not None else REASONS[error.reason].retry_after_seconds


async def abort(context: Context, error: DomainError) -> NoReturn:
    """Ends the call with the error's status and details."""
    await _abort(context, status_code(error), error_status(error))


async def _abort(context: Context, code: grpc.StatusCode, status: status_pb2.Status) -> NoReturn:
    trailing = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(code, status.message, trailing)


async def abort_internal(context: Context) -> NoReturn:
    """Ends the call with INTERNAL; what went wrong is in the node's log alone."""
    await _abort(context, _Code.INTERNAL, internal_status())


def internal_status() -> status_pb2.Status:
    """google.rpc.Status of what no domain error stands for."""
    info = error_details_pb2.ErrorInfo(reason=INTERNAL_REASON, domain=DOMAIN)
    text = "the node failed in a way it does not know; its log says more"
    return _status(_Code.INTERNAL, text, info)


def _status(
    code: grpc.StatusCode, text: str, info: error_details_pb2.ErrorInfo
) -> status_pb2.Status:
    number: int = code.value[0]
    return status_pb2.Status(
        code=number, message=_cut(text, _MAX_MESSAGE_BYTES), details=[_packed(info)]
    )


def _packed(detail: message.Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed
