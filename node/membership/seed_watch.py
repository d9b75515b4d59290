"""Tells people of seed peers that cannot be joined: an event, a line, a part of the report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import structlog

from kakeya import KakeyaError
from kakeya.v1 import capability_pb2
from kakeya_fleet.fleet.membership.seed_faults import UNREACHABLE, SeedFault, SeedFaults, Telling
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.membership.seed_diagnosis import diagnose
from kakeya_fleet.node.watch.event_log import EventKind, EventLog

_log = structlog.get_logger(__name__)


class SeedWatch:
    """Hears of every call to an address that may be a member's. Belongs to the event loop."""

    def __init__(
        self,
        addresses: Collection[str],
        fleet_name: str,
        on_event: Callable[[Mapping[str, object]], None],
        events: EventLog,
        clock: Callable[[], float],
    ) -> None:
        """`addresses` are the seed peers as given, host:port; `clock` gives monotonic seconds."""
        self._faults = SeedFaults(addresses)
        self._fleet_name = fleet_name
        self._on_event = on_event
        self._events = events
        self._clock = clock

    async def failed(
        self, address: str, error: KakeyaError | BadCertificate, *, is_known: bool
    ) -> None:
        """A call to host:port ended in `error`.

        Of the silence of a member that `is_known`, people are told as of its death.
        """
        if address not in self._faults:
            return
        fault = await diagnose(address, error, self._fleet_name)
        if is_known and fault.reason == UNREACHABLE:
            return
        telling = self._faults.failed(address, fault, self._clock())
        if telling is Telling.NOTHING:
            return
        if telling is Telling.NEWS:
            self._events.add(EventKind.SEED_FAULT, fault.message, mend=fault.mend)
        self._say("seed_fault", self._facts(self._faults.get(address)))

    def answered(self, address: str) -> None:
        """A node of this fleet answers at host:port."""
        if self._faults.answered(address) is Telling.NEWS:
            self._events.add(EventKind.SEED_JOINED, f"The peer {address} is joined now.")
            self._say("seed_joined", {"address": address})

    def to_wire(self) -> list[capability_pb2.SeedFault]:
        """Those that cannot be joined now."""
        now = self._clock()
        return [
            capability_pb2.SeedFault(
                address=each.address,
                reason=each.fault.reason,
                message=each.fault.message,
                mend=each.fault.mend,
                since_seconds=now - each.since,
                attempt_count=each.attempt_count,
            )
            for each in self._faults.present()
        ]

    def _facts(self, found: SeedFault) -> dict[str, object]:
        return {
            "address": found.address,
            "reason": found.fault.reason,
            "message": found.fault.message,
            "mend": found.fault.mend,
            "since_seconds": self._clock() - found.since,
            "attempt_count": found.attempt_count,
        }

    def _say(self, event: str, facts: Mapping[str, object]) -> None:
        _log.info(event, **facts)
        self._on_event({"event": event, **facts})
