"""Why a session lost its archive."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from kakeya_fleet.node.rpc.error_status import DOMAIN


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


def error_info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo | None:
    """What the other node said of a failed call; None when it said nothing of ours."""
    trailing = error.trailing_metadata() if isinstance(error, grpc.Call) else ()
    pairs: Sequence[tuple[str, str | bytes]] = trailing or ()
    for key, value in pairs:
        if key != "grpc-status-details-bin" or not isinstance(value, bytes):
            continue
        try:
            return _info(status_pb2.Status.FromString(value))
        except DecodeError:
            return None
    return None


def fault_of(status: status_pb2.Status) -> tuple[RestorerFault, str]:
    """The kind of the error that an archive ended a connection with, and its words."""
    info = _info(status)
    fault = RestorerFault.PROTOCOL
    if info is not None:
        fault = _BY_REASON.get(info.reason, RestorerFault.PROTOCOL)
    return fault, status.message or fault.value


def _info(status: status_pb2.Status) -> error_details_pb2.ErrorInfo | None:
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            return info
    return None
