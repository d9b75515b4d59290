"""Where a session attends to what an archive keeps for it."""

from __future__ import annotations

from enum import StrEnum

from kakeya.v1 import placement_pb2 as wire


class AttendAt(StrEnum):
    """Where queries attend to what is kept in an archive."""

    ARCHIVE = "archive"
    """Where it lies: what travels in a step does not depend on the context."""
    VERIFIER = "verifier"
    """In the verifier's process, to keys and values that are read back in each step."""


ATTENDING: dict[AttendAt, wire.RestorerAttend.ValueType] = {
    AttendAt.ARCHIVE: wire.RESTORER_ATTEND_ARCHIVE,
    AttendAt.VERIFIER: wire.RESTORER_ATTEND_VERIFIER,
}
