"""An attached data connection as an archive answers it, frame by frame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kakeya_fleet.engine.contracts.evicted_store import EvictedQueries, PartialAttention
from kakeya_fleet.engine.errors import RestorerRefused
from kakeya_fleet.node.roles.archive.archive_use import ArchiveUse
from kakeya_fleet.node.roles.archive.data_frames import (
    BYTE_COUNTS,
    MOST_BODY_BYTES,
    Closed,
    Frame,
    FrameReader,
    Kind,
    extended_crc,
    parts_of,
    send_parts,
)
from kakeya_fleet.node.roles.archive.tensor_bytes import deposit_of, partial_of, queries_of
from kakeya_fleet.node.rpc.refusals import ArchiveFull, CorruptFrame, MalformedMessage
from kakeya_fleet.node.trust.sealed_stream import ByteStream


class ServedConnection:
    """One session's frames, answered in turn. Belongs to one thread.

    Each method raises domain errors, and `Closed` or another `OSError` when the session is gone.
    """

    def __init__(self, connection: ByteStream, reader: FrameReader, use: ArchiveUse) -> None:
        """Goes on behind ATTACH, whose serial is 1."""
        self._connection = connection
        self._reader = reader
        self._use = use
        self._serial = 1
        self._deposited = 0
        """CRC-32C of the bodies of all deposits that were taken."""

    def greet(self) -> None:
        """Answers ATTACH."""
        self._answer(Frame(Kind.ATTACHED, position=self._use.length))

    def answer_next(self) -> None:
        """Takes one frame of the session, and answers it if it is one that is answered."""
        frame = self._received()
        match frame.kind:
            case Kind.QUERIES:
                self._attend(frame)
            case Kind.DEPOSIT:
                evicted, tags = deposit_of(self._use.shape, frame.count, frame.body)
                self._use.deposit(frame.position, evicted, tags)
                self._deposited = extended_crc(self._deposited, frame.body.data)
            case Kind.READ:
                self._read(frame)
            case Kind.FORK:
                self._fork(frame.position)
            case Kind.RESERVE:
                self._reserve(frame.position)
            case Kind.COMPLETE:
                self._use.complete(frame.position)
            case _:
                raise MalformedMessage(f"an archive takes no frame of kind {frame.kind}")

    def _received(self) -> Frame:
        """The session's next frame, which renews the lease."""
        try:
            frame = self._reader.receive()
        except Closed:
            # An archive that has expired ends the reading of its connection.
            self._use.renew()
            raise
        if frame.serial != self._serial + 1:
            raise CorruptFrame(f"frame {frame.serial} came behind frame {self._serial}")
        self._serial = frame.serial
        self._use.renew()
        return frame

    def _answer(self, head: Frame, *body: bytes | memoryview) -> None:
        told = replace(
            head,
            serial=head.serial or self._serial,
            deposited=self._deposited,
            stored_bytes=self._use.stored_bytes,
        )
        send_parts(self._connection, *parts_of(told, *body))

    def _attend(self, frame: Frame) -> None:
        """Answers queries, once what is to be carried to them has come."""
        asked = queries_of(
            self._use.shape, frame.layer, frame.position, frame.count, frame.number, frame.body
        )
        self._use.begin(asked)
        carry = _carried(self._received(), asked) if self._use.is_carried_to else None
        found = self._use.finish(carry)
        told = replace(frame, kind=Kind.PARTIAL, number=found.seconds)
        self._answer(told, *(part.data for part in found.parts))
        self._use.tell(found.seconds)

    def _read(self, frame: Frame) -> None:
        """Gives back what is kept of one layer."""
        size = frame.count * self._use.kept_bytes_per_position(frame.layer)
        if size > MOST_BODY_BYTES:
            raise RestorerRefused(f"{frame.count} positions are too many to read at once")
        evicted, tags = self._use.kept(frame.layer, frame.position, frame.count)
        parts = [np.ascontiguousarray(part) for part in (*evicted.groups, tags)]
        self._answer(replace(frame, kind=Kind.KEPT), *(part.data for part in parts))

    def _fork(self, length: int) -> None:
        try:
            forked = self._use.fork(length)
        except ArchiveFull as full:
            self._refuse(Kind.NOT_FORKED, full)
        else:
            told = Frame(Kind.FORKED, position=forked.store.length)
            self._answer(told, forked.archive_id.encode("ascii"))

    def _reserve(self, end: int) -> None:
        try:
            self._use.reserve(end)
        except ArchiveFull as full:
            self._refuse(Kind.NOT_RESERVED, full)
        else:
            self._answer(Frame(Kind.RESERVED, position=end))

    def _refuse(self, kind: Kind, full: ArchiveFull) -> None:
        figures = (int(full.metadata.get(key, "0")) for key in ("needed_bytes", "free_bytes"))
        self._answer(Frame(kind), BYTE_COUNTS.pack(*figures))


def _carried(frame: Frame, asked: EvictedQueries) -> PartialAttention | None:
    """What a CARRY brings. Raises `MalformedMessage` for another frame, `RestorerRefused`."""
    heads, count, head_dim = asked.queries.shape
    if (frame.kind, frame.layer, frame.position) != (Kind.CARRY, asked.layer, asked.first):
        raise MalformedMessage("behind queries comes what is carried to them")
    if not len(frame.body):
        return None
    try:
        return partial_of(frame.body, (heads, count, head_dim))
    except ValueError as error:
        raise RestorerRefused(f"a carry has another size than its queries: {error}") from error
