"""Spot checks of an archive: one of its answers computed again, of what was deposited.

No archive can know which answer is checked: each that is used is as likely as any other to be
the one, and it is chosen, with the operating system's randomness, after it was given. The
keys and values come back from the archive itself, a piece now and then; their tags
(`position_tags`) prove that they are those of the deposit. Here they go, a chunk at a time,
through the sums that archives make, so that an honest one's answer is found bit for bit. What
this takes of memory is one chunk of one layer, whatever the history.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast

import numpy as np

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    EvictedKeysValues,
    EvictedQueries,
    Floats,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.restoration.ranges import KeepingStore
from kakeya_fleet.engine.restoration.stores import EvictedStores

READ_BYTES = 1 << 20
"""Of keys and values that are read back at once."""
MOST_DISTANCE = {"float32": 2.0**-10, "bfloat16": 2.0**-6}
MOST_DISTANCE_PACKED = 2.0**-3
"""How far an honest answer may be from the sum here, as `distance` has it: by the format of keys
and values, or where these are packed.

Libraries and processors round otherwise: float32 has 24 bits, bfloat16 8, less what sums and scores
lose. Where packed tiles are read as they lie, queries and weights have 8 bits of a tile's largest;
where they are unpacked, all. Nobody is accused for less.
"""


class AuditOutcome(StrEnum):
    """How a spot check ended, as it is counted."""

    PASSED = "passed"
    ROUNDED = "rounded"
    """Near enough, but of other bits than what calls itself the same arithmetic gives here."""
    FAILED = "failed"
    NO_ROOM = "no_room"
    """The stores of audits had not the memory: nothing is known of the answer."""


@dataclass(frozen=True, slots=True)
class UsedAnswer:
    """An answer that the verifier used: to what, on top of what, of positions below `end`."""

    asked: EvictedQueries
    carry: PartialAttention | None
    found: PartialAttention
    end: int


@dataclass(slots=True)
class AnswerSample:
    """One of all answers since the last was taken out, each with the same probability.

    The n-th takes the place of the one before with probability 1 / n (Vitter, "Random
    Sampling with a Reservoir", 1985).
    """

    _kept: UsedAnswer | None = None
    _count: int = 0

    def offer(self, answer: UsedAnswer) -> None:
        """Perhaps keeps a copy."""
        self._count += 1
        if not secrets.randbelow(self._count):
            self._kept = _copied(answer)

    def take(self) -> UsedAnswer | None:
        """The one that was kept, the caller's from now on; None without any."""
        kept, self._kept, self._count = self._kept, None, 0
        return kept


@dataclass(frozen=True, slots=True)
class Auditing:
    """What answers are computed with again; shared by the sessions of a node.

    `stores` have a budget of their own. One piece of at most `READ_BYTES` is read back each
    `answers_per_read` answers; see `RestorerSettings.audit_answers` for what this finds.
    """

    stores: EvictedStores
    answers_per_read: int
    chunk: int = CHUNK_KEYS


@dataclass(slots=True)
class AnswerAudit:
    """One answer that is computed again: `wanted`, then `add`, until there is an `outcome`."""

    auditing: Auditing
    answer: UsedAnswer
    shape: EvictedShape
    """Of the answer's layer alone."""
    origin: int
    arithmetic: str
    """The archive's."""
    _position: int = field(init=False)
    _sum: PartialAttention | None = field(init=False)
    _chunk: KeepingStore | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._position = max(self.origin, self.shape.sink)
        self._sum = self.answer.carry

    @property
    def wanted(self) -> range:
        """The positions to read next; empty at the end."""
        tile = self.shape.tile
        most = max(1, READ_BYTES // (tile * self.shape.bytes_per_position)) * tile
        end = min(self.answer.end, self._chunk_end, self._position + most)
        return range(self._position, end)

    def add(self, evicted: EvictedKeysValues) -> None:
        """Takes the layer's keys and values of `wanted`.

        Raises `OutOfKvMemory`, with all given back.
        """
        count = self.shape.count_of(evicted)
        try:
            if self._chunk is None:
                first = self._position // self.auditing.chunk * self.auditing.chunk
                spec = RestorerSpec(RestorerKind.ARCHIVE, codec=self.shape.codec)
                self._chunk = self.auditing.stores.make(self.shape, spec, origin=first)
            self._chunk.deposit(self._position, evicted)
        except BaseException:
            self.release()
            raise
        chunk_end = self._chunk_end
        self._position += count
        if self._position == min(self.answer.end, chunk_end):
            self._sum_up(self._chunk)

    def outcome(self) -> AuditOutcome:
        """How near the answer is to the sum; to be asked once nothing is wanted."""
        found = self.answer.found
        if self._sum is None or _bits(self._sum) == _bits(found):
            return AuditOutcome.PASSED
        if distance(self._sum, found) > most_distance(self.shape):
            return AuditOutcome.FAILED
        same = self.arithmetic == self.auditing.stores.arithmetic
        return AuditOutcome.ROUNDED if same else AuditOutcome.PASSED

    def release(self) -> None:
        """Gives the memory back."""
        chunk, self._chunk = self._chunk, None
        if chunk is not None:
            chunk.release()

    @property
    def _chunk_end(self) -> int:
        """Where the chunk of the next position ends, exclusive."""
        chunk = self.auditing.chunk
        return (self._position // chunk + 1) * chunk

    def _sum_up(self, chunk: KeepingStore) -> None:
        """Goes on from the sum with the attention to a whole chunk, and lets it go."""
        if not self._position % self.auditing.chunk:
            # Queries may see positions behind it.
            chunk.complete()
        chunk.begin(self.answer.asked)
        found = chunk.finish(self._sum) if chunk.origin else chunk.finish()
        self._sum = _copy_of(found)
        self.release()


def most_distance(shape: EvictedShape) -> float:
    """That of answers of such keys and values."""
    return MOST_DISTANCE_PACKED if shape.codec else MOST_DISTANCE[shape.dtype]


def distance(one: PartialAttention, other: PartialAttention) -> float:
    """The greatest difference of outputs and of the logarithms of sums; both must be finite.

    Outputs are divided by their totals, and counted in the greatest of their head and query.
    """
    outputs = [_divided(part) for part in (one, other)]
    greatest = np.maximum(np.abs(outputs[0]).max(axis=2), np.finfo(np.float32).tiny)
    outputs_apart = np.abs(outputs[0] - outputs[1]).max(axis=2) / greatest
    logs = [np.log(np.maximum(part.total, 1e-30)) + part.maximum for part in (one, other)]
    logs_apart = np.abs(logs[0] - logs[1]) / np.maximum(1.0, np.abs(logs[0]))
    return float(max(outputs_apart.max(), logs_apart.max()))


def _divided(part: PartialAttention) -> Floats:
    ones = np.where(part.total > 0.0, part.total, np.float32(1.0))
    return cast(Floats, part.output / ones)


def _bits(part: PartialAttention) -> tuple[bytes, ...]:
    # A sum of nothing may be 0 or -0.
    return tuple((array + 0.0).tobytes() for array in (part.output, part.total, part.maximum))


def _copied(answer: UsedAnswer) -> UsedAnswer:
    asked = answer.asked
    return UsedAnswer(
        EvictedQueries(asked.layer, asked.first, asked.scaling, asked.queries.copy()),
        None if answer.carry is None else _copy_of(answer.carry),
        _copy_of(answer.found),
        answer.end,
    )


def _copy_of(part: PartialAttention) -> PartialAttention:
    return PartialAttention(part.output.copy(), part.total.copy(), part.maximum.copy())
