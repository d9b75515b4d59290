"""When one session's archive is spot-checked, and which of its answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedKeysValues
from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.node.roles.archive.answer_audit import (
    AnswerAudit,
    AnswerSample,
    Auditing,
    AuditOutcome,
    UsedAnswer,
)


@dataclass(frozen=True, slots=True)
class AuditWay:
    """How the archives of one node are audited.

    `arithmetic` is theirs; `on_outcome` hears of each audit, from the verifier's thread.
    """

    auditing: Auditing
    arithmetic: str
    on_outcome: Callable[[AuditOutcome], None]


class StoreAudits:
    """The audits of one store, one behind the other. Belongs to the verifier's thread.

    While one is under way the answer that the next is of is chosen already: at no time does
    an archive know that nobody looks.
    """

    def __init__(self, way: AuditWay, shape: EvictedShape, origin: int) -> None:
        self._way = way
        self._shape = shape
        self._origin = origin
        self._sample = AnswerSample()
        self._audit: AnswerAudit | None = None
        self._answers = 0
        """Since the last piece was read."""
        self.passed_count = 0

    def answered(self, answer: UsedAnswer) -> None:
        """Notes an answer that the verifier uses."""
        self._answers += 1
        if answer.end > max(self._origin, self._shape.sink):
            self._sample.offer(answer)

    @property
    def layer(self) -> int:
        """Whose keys and values `due` are."""
        return self._audit.answer.asked.layer if self._audit is not None else -1

    def due(self) -> range:
        """The positions to read back now; empty while no piece is due, or nothing is known."""
        if self._answers < self._way.auditing.answers_per_read:
            return range(0)
        if self._audit is None:
            answer = self._sample.take()
            if answer is None:
                return range(0)
            layer_shape = self._shape.layer_shape(answer.asked.layer)
            self._audit = AnswerAudit(
                self._way.auditing, answer, layer_shape, self._origin, self._way.arithmetic
            )
        self._answers = 0
        return self._audit.wanted

    def add(self, evicted: EvictedKeysValues) -> bool:
        """Takes what was `due`; whether the archive may go on: False for a false answer."""
        audit = self._audit
        if audit is None:
            raise ValueError("nothing is audited")
        try:
            audit.add(evicted)
        except OutOfKvMemory:
            return self._ended(AuditOutcome.NO_ROOM)
        if audit.wanted:
            return True
        return self._ended(audit.outcome())

    def failed(self) -> None:
        """Notes that what was given back is not what was deposited."""
        self._ended(AuditOutcome.FAILED)

    def release(self) -> None:
        """Gives the memory back of an audit that is under way."""
        audit, self._audit = self._audit, None
        if audit is not None:
            audit.release()

    def _ended(self, outcome: AuditOutcome) -> bool:
        self.release()
        self.passed_count += outcome is AuditOutcome.PASSED
        self._way.on_outcome(outcome)
        return outcome is not AuditOutcome.FAILED
