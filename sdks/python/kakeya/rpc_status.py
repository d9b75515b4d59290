"""From a gRPC status to an error of `kakeya.errors`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from kakeya import errors

ERROR_DOMAIN = "kakeya"
_DETAILS_KEY = "grpc-status-details-bin"


def _classes(base: type[errors.KakeyaError]) -> Iterator[type[errors.KakeyaError]]:
    yield base
    for child in base.__subclasses__():
        yield from _classes(child)


_BY_REASON: dict[str, type[errors.KakeyaError]] = {
    # The one error of text that nodes have too.
    errors.TokenizerNotFound.default_reason: errors.TokenizerNotFound,
    **{kind.default_reason: kind for kind in _classes(errors.RpcError)},
}

# A family is named after its status.
_BY_CODE: dict[str, type[errors.KakeyaError]] = {
    kind.default_code: kind
    for kind in _classes(errors.KakeyaError)
    if kind.default_reason == kind.default_code
}


def kakeya_error(error: aio.AioRpcError, address: str) -> errors.KakeyaError:
    """The error that a failed call to `address` (host:port) stands for.

    ErrorInfo of the domain "kakeya" decides the class by its reason; a reason
    that is not known here, or none, takes the class of the status code. An
    UNAVAILABLE without ErrorInfo is the network's word, not a node's.
    """
    code = error.code()
    detail = error.details() or code.name
    info, retry_after_seconds = _details(error)
    if info is not None:
        kind = _BY_REASON.get(info.reason) or _BY_CODE.get(code.name, errors.RpcError)
        return kind(
            detail,
            reason=info.reason,
            code=code.name,
            metadata=dict(info.metadata),
            retry_after_seconds=retry_after_seconds,
        )
    if code is grpc.StatusCode.UNAVAILABLE:
        return unreachable(address, detail)
    kind = _BY_CODE.get(code.name, errors.UnexpectedError)
    if kind is errors.DeadlineExceeded:
        return kind(f"{address} did not answer in time", metadata={"address": address})
    return kind(
        detail,
        code=code.name,
        metadata={"address": address},
        retry_after_seconds=retry_after_seconds,
    )


def unreachable(
    address: str, detail: str, doubt: tuple[str, str] | None = None
) -> errors.NodeUnreachable:
    """No node answers at `address` (host:port); `detail` has the network's words.

    `doubt` is what else can be the cause, and its mend.
    """
    cause, mend = doubt or ("", "is `fleet join` running there?")
    also = f" ({cause})" if cause else ""
    return errors.NodeUnreachable(
        f"no node answers at {address}{also}: {mend}",
        metadata={"address": address, "detail": detail},
    )


def _details(error: aio.AioRpcError) -> tuple[error_details_pb2.ErrorInfo | None, float | None]:
    """ErrorInfo of this domain and seconds of RetryInfo, each None when not given."""
    status = status_pb2.Status()
    encoded = error.trailing_metadata().get(_DETAILS_KEY)
    if isinstance(encoded, bytes):
        # Details that cannot be read change nothing about the status itself.
        with suppress(DecodeError):
            status.ParseFromString(encoded)
    info = None
    retry_after_seconds = None
    for detail in status.details:
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            candidate = error_details_pb2.ErrorInfo.FromString(detail.value)
            if candidate.domain == ERROR_DOMAIN:
                info = candidate
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            retry = error_details_pb2.RetryInfo.FromString(detail.value)
            retry_after_seconds = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    return info, retry_after_seconds
