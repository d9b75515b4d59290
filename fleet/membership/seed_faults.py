"""Seed peers that cannot be joined: what is wrong with each, and when people are told."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

QUIET_SECONDS = 3.0
"""A peer that is started together with this node is not told of as missing."""
REPEAT_SECONDS = 60.0
"""Between two times that people are told the same."""

UNREACHABLE = "UNREACHABLE"
NOT_A_NODE = "NOT_A_NODE"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a call to a seed peer was in vain.

    `reason` is `UNREACHABLE`, `NOT_A_NODE` or that of the other node's error; `message`
    and `mend` are sentences, the mend empty when none is known.
    """

    reason: str
    message: str
    mend: str


@dataclass(frozen=True, slots=True)
class SeedFault:
    """A seed peer (host:port) that cannot be joined since `since`, in monotonic seconds."""

    address: str
    fault: Fault
    since: float
    attempt_count: int


class Telling(StrEnum):
    """What people are told now."""

    NEWS = "news"
    REMINDER = "reminder"
    NOTHING = "nothing"


class SeedFaults:
    """What came of calling the seed peers that this node was told of; all others are ignored."""

    def __init__(self, addresses: Collection[str]) -> None:
        self._seeds = frozenset(addresses)
        self._faults: dict[str, SeedFault] = {}
        self._told: dict[str, tuple[str, float]] = {}

    def __contains__(self, address: str) -> bool:
        return address in self._seeds

    def failed(self, address: str, fault: Fault, now: float) -> Telling:
        """Notes that the peer was called in vain.

        What cannot pass by itself is news at once, silence after `QUIET_SECONDS`; either is
        told again every `REPEAT_SECONDS`, and at once when its reason is another one.
        """
        if address not in self._seeds:
            return Telling.NOTHING
        before = self._faults.get(address)
        found = (
            SeedFault(address, fault, now, 1)
            if before is None
            else replace(before, fault=fault, attempt_count=before.attempt_count + 1)
        )
        self._faults[address] = found
        reason, told_at = self._told.get(address, ("", 0.0))
        if reason != fault.reason:
            if fault.reason == UNREACHABLE and now - found.since < QUIET_SECONDS:
                return Telling.NOTHING
            telling = Telling.NEWS
        elif now - told_at >= REPEAT_SECONDS:
            telling = Telling.REMINDER
        else:
            return Telling.NOTHING
        self._told[address] = (fault.reason, now)
        return telling

    def answered(self, address: str) -> Telling:
        """Notes that a node of this fleet answers there: news to those who were told otherwise."""
        self._faults.pop(address, None)
        return Telling.NOTHING if self._told.pop(address, None) is None else Telling.NEWS

    def get(self, address: str) -> SeedFault:
        """What is wrong with the peer. Raises `KeyError` for one that was not called in vain."""
        return self._faults[address]

    def present(self) -> tuple[SeedFault, ...]:
        """All that cannot be joined, by address; those too that nobody was told of yet."""
        return tuple(fault for _, fault in sorted(self._faults.items()))
