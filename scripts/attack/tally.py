"""What was sent to a node, what it answered, and what of that needs a cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

UNNAMED = frozenset({"INTERNAL", "UNKNOWN", "500"})
"""Statuses that no bad request should have: each is told with what caused it."""
TOLD_OF_EACH = 5


@dataclass(slots=True)
class Tally:
    """Counts of mutated messages by port, of calls by caller, service and status, of reasons.

    Messages are counted as they are written; of a stream that ends, the ones behind are not.
    """

    messages: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    statuses: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    reasons: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    unnamed: defaultdict[str, list[dict[str, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @property
    def total(self) -> int:
        """Mutated messages that were written."""
        return sum(self.messages.values())

    def sent(self, service: str, count: int = 1) -> None:
        """So many mutated messages were written."""
        self.messages[service] += count

    def called(self, caller: str) -> None:
        """A call of gRPC was made by so one."""
        self.calls[caller] += 1

    def ended(self, service: str, status: str, reason: str = "") -> None:
        """A call or a connection ended so."""
        self.statuses[service][status] += 1
        if reason:
            self.reasons[service][reason] += 1

    def without_name(self, method: str, status: str, words: str, sent: bytes) -> None:
        """A status of `UNNAMED` was answered to `sent`, or to what it is the last of."""
        told = self.unnamed[f"{method} {status}"]
        if len(told) < TOLD_OF_EACH:
            told.append({"words": words[:500], "sent": sent[:300].hex()})

    @property
    def unnamed_count(self) -> int:
        """Calls that ended with a status of `UNNAMED`."""
        return sum(
            count
            for statuses in self.statuses.values()
            for status, count in statuses.items()
            if status in UNNAMED
        )

    def report(self) -> dict[str, object]:
        """All of it, for JSON."""
        return {
            "messages": self.total,
            "messages_by_service": dict(sorted(self.messages.items())),
            "calls_by_caller": dict(sorted(self.calls.items())),
            "ends_by_service_and_status": _plain(self.statuses),
            "ends_by_service_and_reason": _plain(self.reasons),
            "internal_or_unknown": self.unnamed_count,
            "internal_or_unknown_causes": dict(self.unnamed),
        }


def _plain(counts: defaultdict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {name: dict(sorted(each.items())) for name, each in sorted(counts.items())}
