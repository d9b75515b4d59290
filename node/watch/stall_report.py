"""Tells of stalls of the event loop: each as a metric, the first of a kind as an event."""

from __future__ import annotations

import time
from collections.abc import Callable

from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.watch.event_log import EventKind, EventLog, Severity
from kakeya_fleet.node.watch.loop_stall import LoopStall, StallCause, StallSettings

TASK = "watch of the event loop"
"""Its name among the tasks whose faults are counted."""

_MOST_KEPT = 64
"""Steps whose untold stalls are remembered until the next is told."""

_MACHINE_MEND = (
    "Nothing in the node: other processes, or its own computing threads, had all cores. Give it"
    " fewer threads (OMP_NUM_THREADS) or fewer neighbours if it is often suspect."
)


class StallReport:
    """Belongs to the event loop's thread. `clock` gives monotonic seconds."""

    def __init__(
        self,
        settings: StallSettings,
        events: EventLog,
        metrics: NodeMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._told: dict[str, float] = {}
        self._untold: dict[str, int] = {}
        for cause in StallCause:
            metrics.loop_stall_seconds.labels(cause.value)

    def __call__(self, noted: LoopStall | OSError) -> None:
        """Tells of a stall, or counts why the loop's thread is watched less well."""
        if isinstance(noted, OSError):
            self._metrics.background_faults.labels(TASK, type(noted).__name__).inc()
        else:
            self._tell(noted)

    def _tell(self, stall: LoopStall) -> None:
        cause = stall.cause(self._settings.least_seconds)
        self._metrics.loop_stall_seconds.labels(cause.value).observe(stall.seconds)
        of_machine = cause is StallCause.MACHINE
        # In whose step the machine took its core away is chance.
        subject = "" if of_machine else stall.step
        now = self._clock()
        self._forget(now)
        if subject in self._told:
            self._untold[subject] = self._untold.get(subject, 0) + 1
            return
        self._told[subject] = now
        self._events.add(
            EventKind.LOOP_STALLED,
            _sentence(stall, self._untold.pop(subject, 0)),
            severity=Severity.INFO if of_machine else None,
            mend=_MACHINE_MEND if of_machine else None,
        )

    def _forget(self, now: float) -> None:
        """What was told of long ago may be told of again."""
        quiet = self._settings.quiet_seconds
        self._told = {each: at for each, at in self._told.items() if now - at < quiet}
        if len(self._untold) > len(self._told) + _MOST_KEPT:
            del self._untold[next(iter(self._untold))]


def _sentence(stall: LoopStall, untold: int) -> str:
    place = f" at {stall.place}" if stall.place else ""
    parts = [f"{stall.on_core:.2f} s computing"]
    if stall.ready is not None:
        waiting = stall.seconds - stall.on_core - stall.ready
        parts += [
            f"{stall.ready:.2f} s ready without a free core",
            f"{waiting:.2f} s waiting for a file, a lock or a thread that held the interpreter",
        ]
    more = f" {untold} more since it was last told." if untold else ""
    return (
        f"The event loop stood still for {stall.seconds:.2f} s, {stall.step_seconds:.2f} s of them"
        f" in {stall.step}{place}: {', '.join(parts)}.{more}"
    )
