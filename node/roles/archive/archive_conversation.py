"""The verifier's side of a data connection: what is sent is numbered, what answers is checked."""

from __future__ import annotations

from dataclasses import replace

from kakeya_fleet.node.roles.archive.data_connection import ConnectionLost, DataConnection
from kakeya_fleet.node.roles.archive.data_frames import Frame, Kind, extended_crc, parts_of
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault

_ANSWERED = frozenset((Kind.ATTACH, Kind.QUERIES, Kind.FORK, Kind.RESERVE, Kind.READ))
_OF_A_PLACE = frozenset((Kind.QUERIES, Kind.READ))
"""Whose answers have their layer, count and position."""


class ArchiveConversation:
    """Frames of one session, of which at most one under way is answered.

    Every method but `end` raises `ConnectionLost`. Belongs to the verifier's thread.
    """

    def __init__(self, connection: DataConnection) -> None:
        self._connection = connection
        self._serial = 0
        self._awaited = Frame(Kind.ATTACH)
        """What the next answer must be one to."""
        self._deposited = 0
        """CRC-32C of the bodies of all deposits, as the archive is to acknowledge them."""

    def send(self, head: Frame, *body: bytes | memoryview) -> None:
        """Sends the next frame."""
        self._serial += 1
        told = replace(head, serial=self._serial)
        if told.kind in _ANSWERED:
            self._awaited = told
        if told.kind == Kind.DEPOSIT:
            for part in body:
                self._deposited = extended_crc(self._deposited, part)
        self._connection.send(*parts_of(told, *body))

    def answer(self, *kinds: Kind, within: float | None = None) -> Frame:
        """The answer to the last frame that is answered, which is of one of these kinds."""
        frame = self._connection.receive(within)
        if frame.kind not in kinds:
            words = f"it answered without {kinds[0].name}"
            raise ConnectionLost(RestorerFault.PROTOCOL, words)
        asked = self._awaited
        if (frame.serial, frame.deposited) != (asked.serial, self._deposited):
            raise ConnectionLost(
                RestorerFault.MISMATCHED,
                f"it answered frame {frame.serial} in place of {asked.serial}, or acknowledged"
                " other deposits than were sent",
            )
        place = (frame.layer, frame.count, frame.position)
        wanted = (asked.layer, asked.count, asked.position)
        if asked.kind in _OF_A_PLACE and place != wanted:
            raise ConnectionLost(
                RestorerFault.MISMATCHED,
                f"it answered for layer, count and position {place} in place of {wanted}",
            )
        return frame

    def end(self) -> None:
        """Ends the connection."""
        self._connection.end()
