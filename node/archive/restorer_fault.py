"""Why a session lost its archive."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from node.rpc.error_table import DOMAIN


class RestorerFault(StrEnum):
    """What went wrong, as it is counted."""

    UNREACHABLE = "unreachable"
    DEADLINE = "deadline"
    FULL = "full"
    GONE = "gone"
    """The archive does not know the session: expired, released, or it was started anew."""
    REFUSED = "refused"
    NOT_FINITE = "not_finite"
    PROTOCOL = "protocol"


_BY_REASON = {
    "ARCHIVE_FULL": RestorerFault.FULL,
    "ARCHIVE_NOT_FOUND": RestorerFault.GONE,
    "RESTORER_REFUSED": RestorerFault.REFUSED,
    "DRAINING": RestorerFault.GONE,
}
_BY_CODE = {
    grpc.StatusCode.UNAVAILABLE: RestorerFault.UNREACHABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: RestorerFault.DEADLINE,
    grpc.StatusCode.CANCELLED: RestorerFault.GONE,
}


def error_info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo | None:
    """What the other node said of a failed call; None when it said nothing of ours."""
    trailing = error.trailing_metadata() if isinstance(error, grpc.Call) else ()
    pairs: Sequence[tuple[str, str | bytes]] = trailing or ()
    for key, value in pairs:
        if key != "grpc-status-details-bin" or not isinstance(value, bytes):
            continue
        try:
            status = status_pb2.Status.FromString(value)
        except DecodeError:
            return None
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info) and info.domain == DOMAIN:
                return info
    return None


def fault_of(error: grpc.RpcError) -> tuple[RestorerFault, str]:
    """The kind of a failed call, and its words."""
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    words = (error.details() or code.name) if isinstance(error, grpc.Call) else str(error)
    info = error_info(error)
    if info is not None:
        return _BY_REASON.get(info.reason, RestorerFault.PROTOCOL), words
    return _BY_CODE.get(code, RestorerFault.PROTOCOL), words
