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
    UNTRUSTED = "untrusted"
    """One end has not proven to the other that it is the member who is meant."""
    NOT_FINITE = "not_finite"
    IMPOSSIBLE = "impossible"
    """Numbers that no keys and values give."""
    PROTOCOL = "protocol"
    CORRUPT = "corrupt"
    """A frame arrived with other bytes than were sent, or out of its place."""
    MISMATCHED = "mismatched"
    """An answer to something else than was asked, or that acknowledges other deposits."""
    ALTERED = "altered"
    """It gave back other keys and values than were deposited."""
    FALSE_ANSWER = "false_answer"
    """What was deposited gives another answer."""

    @property
    def is_of_numbers(self) -> bool:
        """Whether what it keeps or computes is wrong: then earlier answers may have been, too."""
        return self in _OF_NUMBERS


_OF_NUMBERS = frozenset(
    (
        RestorerFault.NOT_FINITE,
        RestorerFault.IMPOSSIBLE,
        RestorerFault.ALTERED,
        RestorerFault.FALSE_ANSWER,
    )
)


_BY_REASON = {
    "ARCHIVE_FULL": RestorerFault.FULL,
    "ARCHIVE_NOT_FOUND": RestorerFault.GONE,
    "RESTORER_REFUSED": RestorerFault.REFUSED,
    "DRAINING": RestorerFault.GONE,
    "BAD_CERTIFICATE": RestorerFault.UNTRUSTED,
    "FRAME_CORRUPT": RestorerFault.CORRUPT,
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
